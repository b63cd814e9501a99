"""report.html of a result folder: the table and every plot on one page that needs nothing but itself."""

from __future__ import annotations

import html
from pathlib import Path

from bench.profile.records import Profile
from bench.report import checks, heading

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 1rem auto; }}
h1 {{ font-size: 1.3rem; margin: 0; }}
.when {{ color: #666; margin: 0 0 1rem; }}
.simulated {{ color: #a0209a; font-weight: bold; }}
figure {{ margin: 1rem 0; }}
figure svg {{ width: 100%; height: auto; }}
pre {{ font: 12px/1.35 ui-monospace, "DejaVu Sans Mono", monospace; overflow-x: auto; background: #f7f7f7; }}
table.checks {{ border-collapse: collapse; font-size: 12px; }}
table.checks th {{ font-weight: normal; text-align: left; padding: 0 .5rem; }}
table.checks td {{ text-align: center; cursor: help; }}
table.checks tr:nth-child(even) {{ background: #f7f7f7; }}
td.fails {{ color: #c00; font-weight: bold; }}
td.ok {{ color: #080; }}
</style>
</head>
<body>
<h1>{name}</h1>
<p class="when">{when}</p>
{warning}{figures}
<pre>{table}</pre>
{checks}
</body>
</html>
"""


def render(profile: Profile, table: str, plots: dict[str, Path]) -> str:
    """The page; table: the printed report;  plots: SVG files by what they show, drawn into the page."""
    name, when = heading.title(profile)
    warning = f'<p class="simulated">{html.escape(heading.SIMULATED)}</p>\n' if profile.simulated else ""
    figures = "\n".join(_figure(what, path) for what, path in plots.items())
    return PAGE.format(
        title=html.escape(f"roofline: {heading.device_name(profile)}"),
        name=html.escape(name),
        when=html.escape(when),
        warning=warning,
        figures=figures,
        table=html.escape(table),
        checks=_checks(profile),
    )


def _checks(profile: Profile) -> str:
    """The self-checks of every ceiling, folded away until they are asked for."""
    matrix = checks.as_html(profile.ceilings)
    about = "Self-checks of every ceiling: ✓ ok, ✗ fails, · not tested; the evidence under each mark"
    return matrix and f"<details><summary>{about}</summary>\n{matrix}\n</details>"


def _figure(what: str, path: Path) -> str:
    """A plot as part of the page: the SVG itself, its names kept apart from those of other plots."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    mark = what.split()[0].lower()
    for reference in ('id="', 'href="#', "url(#"):
        text = text.replace(reference, f"{reference}{mark}-")
    return f'<figure role="img" aria-label="{html.escape(what)}">{text}</figure>'
