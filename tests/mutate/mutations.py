"""What can be changed in a C file, one change at a time: reads text, writes nothing.

No parser: the sources are laid out by clang-format, so that binary operators stand between spaces, a function's
body between a "{" and a "}" at the beginning of a line, and a statement begins a line. Comments, literals and
preprocessor lines are blanked out first. What a change cannot show in a test is left out: log lines, assertions,
prefetches (from memory or a disk), what gives memory and files back (the address sanitizer watches that), and lines
that only run when memory is used up.
"""
import re
from typing import Iterator, NamedTuple

OTHER_COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OTHER_SIGN = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}
OTHER_LOGIC = {"&&": "||", "||": "&&"}
OTHER_EQUALITY = {"==": "!=", "!=": "=="}
OTHER_TRUTH = {"true": "false", "false": "true"}

# Statements that begin with one of these calls are left as they are.
SILENT = re.compile(
    r"\s*(?:\(void\))?(?:rt_(?:debug|info|warn|assert)|_Static_assert|fprintf|__builtin_\w+|va_end|munmap|"
    r"return rt_fail|(?:\w+(?:_|\.|->))*(?:prefetch|will_need|free|fini|destroy|Delete|release|close|abort)\w*)\b *\(")
NO_MEMORY = re.compile(r"RT_NO_MEMORY|out of memory|rt_alloc|rt_grow")
BINARY = r"(?<= )(%s)(?= |$)"
COMPARISON = re.compile(BINARY % r"<=|>=|<|>")
SIGN = re.compile(BINARY % r"\+=|-=|\+|-")
LOGIC = re.compile(BINARY % r"&&|\|\|")
EQUALITY = re.compile(BINARY % r"==|!=")
ONE_MORE = re.compile(r" [+-] 1u?\b(?!\.)")
TRUTH = re.compile(r"\b(true|false)\b")
NUMBER = re.compile(r"(?<![\w.'])(\d+)([uUlL]*)(?![\w.'])")
# How large a buffer is: what matters of that is when it is too small.
ARRAY = re.compile(r"\s+(?:static |const )*\w+ [^=()]*\w\[(?:\w+ [+*] )*\d+u?\]")
GIVES_BACK = re.compile(r"\w_?(?:destroy|fini)\(|^static void (?:destroy|fini)\(")
CONDITION = re.compile(r"^(\s*(?:\} else )?if \()(.*)(\)(?: \{)?)$")
ASSIGNMENT = re.compile(r"^\s+((?:->|[^=!<>])+?) ?(?:[+\-|&^*/%]|<<|>>)?= .*;$")
CALL = re.compile(r"^\s+(?:\(void\))?\w+\(.*\);$")
STEP = re.compile(r"^\s+\S.*(?:\+\+|--);$")
NO_STATEMENT = re.compile(r"\s+(?:return|break|continue|goto|case|default|else)\b")
STATUS = re.compile(r"^(\s*return )(status|RT_[A-Z_]+);$")
FAILURE = re.compile(r"^(\s*return )(rt_fail\(.*)$")


NAME = re.compile(r"(\w+)\(")


class Mutation(NamedTuple):
    path: str
    line: int  # from 0
    operator: str
    before: str
    after: str
    body: tuple  # first and last line of the function
    function: str = ""  # its name


def blank(text: str) -> str:
    """The text with comments, literals and preprocessor lines as spaces (literals: underscores), same length."""
    def hide(match: re.Match) -> str:
        fill = "_" if match.group()[0] in "\"'" else " "
        return re.sub(r"[^\n]", fill, match.group())
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*"
    return re.sub(pattern, hide, text, flags=re.S | re.M)


def bodies(code: list) -> Iterator[tuple]:
    """First and last line inside every function, and its name, but for those that give memory back."""
    begin, head = None, ""
    for i, line in enumerate(code):
        if line == "{":
            begin = i + 1
        elif line == "}" and begin is not None:
            if not GIVES_BACK.search(head):
                name = NAME.search(head)
                yield (begin, i - 1), name.group(1) if name else ""
            begin = None
        if line and not line[0].isspace() and line not in "{}":
            head = line


def swaps(code: str, pattern: re.Pattern, others: dict) -> Iterator[str]:
    for match in pattern.finditer(code):
        yield match.start(1), match.end(1), others[match.group(1)]


def numbers(code: str) -> Iterator[tuple]:
    for match in NUMBER.finditer(code):
        if code[match.start() - 1:match.end() + 1] == "{0}":
            continue
        value = int(match.group(1))
        for other in {value + 1, abs(value - 1)}:
            yield match.start(1), match.end(1), str(other)


def is_statement(code: str) -> bool:
    """One line, whole, that can be left out: no declaration, no way out of the function."""
    if NO_STATEMENT.match(code) or code.count("(") != code.count(")"):
        return False
    assignment = ASSIGNMENT.match(code)
    if assignment:
        return not re.search(r"[\w*]\s+[*\w]", assignment.group(1).strip())
    return bool(CALL.match(code) or STEP.match(code))


def changes(code: str, begins: bool) -> Iterator[tuple]:
    """(operator, first column, end, text that takes its place) of a line; code: without comments and literals.
    begins: a statement begins here."""
    if ARRAY.match(code):
        return
    for name, pattern, others in (("boundary", COMPARISON, OTHER_COMPARISON), ("sign", SIGN, OTHER_SIGN),
                                  ("logic", LOGIC, OTHER_LOGIC), ("negated", EQUALITY, OTHER_EQUALITY),
                                  ("constant", TRUTH, OTHER_TRUTH)):
        for start, end, text in swaps(code, pattern, others):
            yield name, start, end, text
    for match in ONE_MORE.finditer(code):
        yield "one more", match.start(), match.end(), ""
    for start, end, text in numbers(code):
        yield "constant", start, end, text
    condition = CONDITION.match(code)
    if condition and condition.group(2).count("(") == condition.group(2).count(")"):
        yield "negated", condition.start(2), condition.end(2), None
    if begins and is_statement(code):
        indent = len(code) - len(code.lstrip())
        yield "dropped", indent, len(code), "(void)0;"
    status = STATUS.match(code)
    if status and status.group(2) not in ("RT_OK", "RT_NO_MEMORY"):
        yield "early success", status.start(2), status.end(2), "RT_OK"
    failure = FAILURE.match(code)
    if failure:
        yield "early success", failure.start(2), failure.start(2), "0 * (int)"


def guards_silence(code: list, i: int) -> bool:
    """Whether the line is a condition for nothing but one statement that is left as it is."""
    then = code[i + 1]
    if not CONDITION.match(code[i]) or code[i].endswith("{") or not SILENT.match(then) or FAILURE.match(then):
        return False
    end = next(j for j in range(i + 1, len(code)) if code[j].rstrip().endswith((";", "{", "}")))
    return code[end].rstrip().endswith(";") and not code[end + 1].lstrip().startswith("else")


def find(path: str, text: str) -> Iterator[Mutation]:
    lines, code = text.split("\n"), blank(text).split("\n")
    for body, function in bodies(code):
        depth, silent = 0, False
        for i in range(body[0], body[1] + 1):
            begins = depth == 0
            if begins and code[i].strip():
                silent = bool(SILENT.match(code[i])) and not FAILURE.match(code[i])
            depth += code[i].count("(") - code[i].count(")")
            if silent or guards_silence(code, i) or NO_MEMORY.search(lines[i]) or i < body[1] and NO_MEMORY.search(lines[i + 1]):
                continue
            begins = begins and code[i - 1].rstrip().endswith((";", "{", "}", ")", ":", "else"))
            for operator, start, end, text_after in changes(code[i], begins):
                old = lines[i]
                if text_after is None:
                    text_after = "!(%s)" % old[start:end]
                after = old[:start] + text_after + old[end:]
                yield Mutation(path, i, operator, old, after, body, function)
