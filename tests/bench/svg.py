"""What the pictures of docs/results are put together from."""
from html import escape


def text_at(x, y, text, more=""):
    return '<text x="%.1f" y="%.1f"%s>%s</text>' % (x, y, more, escape(text))


def line_at(x1, y1, x2, y2, colour, more=""):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>' % (x1, y1, x2, y2, colour, more)


def spread(places, least):
    """The same places, apart by at least so much, in their order."""
    moved = {}
    for at in sorted(range(len(places)), key=lambda i: places[i]):
        above = max(moved.values()) + least if moved else places[at]
        moved[at] = max(places[at], above)
    return [moved[at] for at in range(len(places))]


def picture(width, height, shapes):
    head = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">' %
            (width, height))
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>'] + shapes + ["</svg>"]) + "\n"
