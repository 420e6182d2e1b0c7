"""Pages of the server: one that follows a run, and a list of runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from urllib.parse import quote

from dovetail.live import figures, plot
from dovetail.live.markup import Html, tag, together
from dovetail.live.recording import Recording
from dovetail.live.report import document
from dovetail.live.view import body

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


def run_page(name: str, recording: Recording, *, single: bool) -> str:
    """A run as it is now; a script asks for how it goes on."""
    title = recording.heading.title if recording.heading else name
    content = run_content(name, recording, single=single)
    return document(title, content, POLICY, _script(), data_events=f"/events/{quote(name, safe='')}")


def run_content(name: str, recording: Recording, *, single: bool) -> Html:
    if recording.heading is None:
        return together(
            tag("h1", "Nothing yet"), tag("p", f"{name} will be shown as soon as a join is recorded there.")
        )
    link = tag("a", "save as a report", href=f"/report/{quote(name, safe='')}", download="")
    others = None if single else together(" · ", tag("a", "all runs", href="/"))
    return together(body(recording), tag("p", link, others, class_="more"))


def list_page(runs: Mapping[str, Recording]) -> str:
    return document("Runs", list_content(runs), POLICY, _script(), data_events="/events")


def list_content(runs: Mapping[str, Recording]) -> Html:
    entries = []
    for name, run in runs.items():
        if run.heading is not None:
            glance = run.glance()
            state = figures.state(glance)
            entries.append(
                tag(
                    "li",
                    tag("a", glance.heading.title, href=f"/run/{quote(name, safe='')}"),
                    tag("span", state, class_=f"state {plot.known(state)}"),
                    tag("span", plot.seconds(glance.seconds)),
                    tag("span", f"{glance.latest.results:,} results", class_="count"),
                    tag("code", glance.heading.on),
                )
            )
    none = tag("p", "Joins will be shown here as soon as they are recorded.", class_="more") if not entries else None
    return together(tag("p", "Dovetail", class_="brand"), tag("h1", "Runs"), tag("ul", *entries, class_="runs"), none)


def script() -> str:
    return files("dovetail.live").joinpath("page.js").read_text(encoding="utf-8")


def _script() -> Html:
    return tag("script", src="/page.js")
