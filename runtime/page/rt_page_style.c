// rt_page_style - how pages look: light or dark, on wide screens and on phones.
#include "runtime/page/rt_chart.h"

static const char style[] =
    ":root{--page:#fff;--ink:#1c2430;--soft:#5b6675;--grid:#e3e7ec;--box:#f6f7f9;--warn:#8a4b00;"
    "--alert:#b3261e;\n"
    "--c0:#2f6fd0;--c1:#d9662b;--c2:#2b9a66;--c3:#b5409b;--c4:#8a7a16;--c5:#1a9bb0;--c6:#7a56d6;"
    "--c7:#6b7583}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14181e;--ink:#e6eaf0;--soft:#9aa6b5;"
    "--grid:#2c343f;--box:#1c222b;--warn:#ffb45c;--alert:#ff8a80;\n"
    "--c0:#6ea2f2;--c1:#f08a55;--c2:#55c590;--c3:#e07cc9;--c4:#cfbb45;--c5:#4fc9de;--c6:#a68bf0;"
    "--c7:#a5afbd}}\n"
    "body{margin:0 auto;padding:24px;max-width:1360px;background:var(--page);color:var(--ink);"
    "font:15px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;margin:32px 0 8px}"
    "h3{font-size:15px;margin:0 0 2px}\n"
    ".note{color:var(--soft);margin:2px 0}.warn{color:var(--warn);margin:4px 0;"
    "overflow-wrap:anywhere}\n"
    ".alert{color:var(--alert);border-left:4px solid var(--alert);padding:2px 0 2px 8px;"
    "margin:4px 0;overflow-wrap:anywhere}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));"
    "gap:16px}\n"
    "section{background:var(--box);border-radius:8px;padding:12px 14px;min-width:0}\n"
    "svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}"
    ".end{text-anchor:end}.middle{text-anchor:middle}\n"
    ".grid{stroke:var(--grid);fill:none}.line{fill:none;stroke-width:1.8;stroke-linejoin:round;"
    "stroke-linecap:round}.dashed{stroke-dasharray:5 4}\n"
    ".legend{margin:4px 0 0;color:var(--soft);font-size:13px;overflow-wrap:anywhere}"
    ".legend span{margin-right:14px;display:inline-block}small{font-weight:400;color:var(--soft)}\n"
    ".legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px;"
    "box-sizing:border-box}.hollow{background:none!important;border-style:solid;"
    "border-width:3px}\n"
    ".table{overflow-x:auto;font-size:14px}table{border-collapse:collapse;font-variant-numeric:"
    "tabular-nums}\n"
    "th,td{padding:4px 10px 4px 0;text-align:right;border-bottom:1px solid var(--grid);"
    "white-space:nowrap}th{white-space:normal;vertical-align:bottom;"
    "font-weight:600;color:var(--soft);font-size:13px}"
    ".facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(118px,1fr));gap:8px;"
    "margin:12px 0}.fact{background:var(--box);border-radius:8px;padding:8px 10px;min-width:0}"
    ".fact small,.fact b{display:block}.fact b{font-size:18px;overflow-wrap:anywhere}\n"
    "#axis{margin:0 6px 0 0;vertical-align:middle}label{color:var(--soft);font-size:13px}"
    "#axis:checked~main .by-time,#axis:not(:checked)~main .by-iteration{display:none}\n"
    "th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-"
    "width:160px}\n"
    // A phone shows charts at half their size.
    "@media(max-width:600px){body{padding:16px}svg text{font-size:20px}th{min-width:72px}}\n";

void rt_page_head(rt_page *page, const char *title)
{
    rt_page_add(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>");
    rt_page_text(page, title);
    rt_page_add(page, "</title>\n<style>\n%s", style);
    for (uint32_t k = 0; k < RT_CHART_COLOURS; k++)
        rt_page_add(page,
                    ".line.s%u{stroke:var(--c%u)}rect.k%u{fill:var(--c%u)}"
                    "i.s%u,i.k%u{background:var(--c%u);border-color:var(--c%u)}\n",
                    k, k, k, k, k, k, k, k);
    rt_page_add(page, "</style>\n");
}

// Beside the part that is replaced: a choice outlives what it is a choice about.
void rt_page_begin_main(rt_page *page)
{
    rt_page_add(page, "<input type=\"checkbox\" id=\"axis\"/>"
                      "<label for=\"axis\">iterations in place of time on the axes</label>\n"
                      "<main id=\"now\">\n");
}
