"""Page about the console itself: its settings, its libraries and their licences."""

from __future__ import annotations

from ottla._version import __version__
from ottla.console.model import Link, Page, Table, columns
from ottla.console.visit import Visit, page

LIBRARIES = (
    ("htmx 4.0.1", "Zero-Clause BSD", "/static/vendor/htmx.LICENSE"),
    ("uPlot 1.6.32", "MIT", "/static/vendor/uplot.LICENSE"),
)  # fmt: skip


@page("/about", "The console's version, settings and libraries", name="About", section="Console")
def about(visit: Visit) -> Page:
    settings = visit.settings
    facts = [
        ("Version", __version__), ("Cluster", settings.properties.get("bootstrap.servers", "localhost:9092")),
        ("Listens on", f"{settings.host}:{settings.port}"), ("Only reads", settings.is_read_only), ("Logins", settings.needs_login),
        ("REST", Link("/api/v1/openapi.json", "/api/v1/openapi.json")),
    ]  # fmt: skip
    rows = [{"name": name, "licence": Link(licence, path)} for name, licence, path in LIBRARIES]
    table = Table("libraries", "Libraries that the browser loads from this console", columns(name="Library", licence="Licence"), rows)
    return Page("About", facts, [table])
