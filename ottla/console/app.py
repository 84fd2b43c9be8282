"""The console's web application: routes requests to pages and actions, and answers every failure with one sentence, as a page or as JSON.
Pages and actions are synchronous functions that may wait for the cluster, so they run in threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.client.errors import TransportError
from ottla.console import downloads, openapi, pages, streams
from ottla.console.bodies import form_of
from ottla.console.desk import LOOPBACK, Desk, Settings
from ottla.console.login import add_login
from ottla.console.model import Done, Note, Page, PageError
from ottla.console.rendering import FOLDER, as_html, as_json
from ottla.console.safety import COOKIE, LOCAL_NAMES, App, Guard, Session, Sessions
from ottla.console.visit import ACTIONS, PAGES, ActionHandler, PageHandler, Visit

LOGIN = "/login"
API = "/api/v1"
STATUS_OF = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
}
Endpoint = Callable[[Request], Awaitable[Response]]


class Console:
    """The state of a console: its settings and its sessions. Without logins all sessions share one `Desk`."""

    def __init__(self, settings: Settings) -> None:
        pages.load()
        self.settings = settings
        self.sessions = Sessions()
        self.desk = None if settings.needs_login else Desk(settings)

    def app(self) -> App:
        """Returns the ASGI application."""
        routes: list[BaseRoute] = [
            Mount("/static", _Assets(directory=FOLDER / "static")),
            Route(f"{API}/openapi.json", self._openapi),
            *(Route(f"{prefix}{streams.PATH}", self._tail(is_json=bool(prefix))) for prefix in ("", API)),
        ]
        for file in downloads.DOWNLOADS:
            routes += [Route(f"{prefix}{file.path}", self._download(file.make, is_json=bool(prefix))) for prefix in ("", API)]
        for each in PAGES:
            path = each.path.rstrip("/")
            routes += [
                Route(f"{API}{path or '/overview'}", self._serve(each, is_json=True)),
                Route(f"{path or '/overview'}.json", self._serve(each, is_json=True)),
                Route(each.path, self._serve(each)),
            ]
            if path:
                routes.append(Route(f"{path}/", self._serve(each)))
        routes += [Route(f"/do{each.path}", self._act(each), methods=["POST"]) for each in ACTIONS]
        add_login(self.settings, self.sessions, routes)
        failures: dict[Any, Any] = {404: self._missing, 405: self._missing, Exception: self._broken}
        names = LOCAL_NAMES if self.settings.host in LOOPBACK else frozenset[str]()
        return Guard(Starlette(routes=routes, exception_handlers=failures), names)

    def close(self) -> None:
        """Closes the connections of all sessions."""
        self.sessions.close()
        if self.desk is not None:
            self.desk.release()

    # Requests

    def session_of(self, request: Request) -> Session:
        """Returns the session of the request's cookie, or a new one."""
        session = self.sessions.find(request.cookies.get(COOKIE, ""))
        if session is None:
            session = Session()
            session.desk = self.desk
            self.sessions.add(session)
        return session

    def _visit(self, request: Request, session: Session, form: Mapping[str, str]) -> Visit:
        assert session.desk is not None, "the caller has checked the login"
        query = dict(request.query_params)
        return Visit(session, session.desk, self.settings, request.path_params, query, form)

    def _serve(self, handler: PageHandler, *, is_json: bool = False) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self.session_of(request)
            if session.desk is None:
                return _to_login(request, is_json=is_json)
            visit = self._visit(request, session, {})
            return await run_in_threadpool(self._made, handler.make, visit, request, is_json)

        return endpoint

    def _made(self, make: Callable[[Visit], Page], visit: Visit, request: Request, is_json: bool) -> Response:
        status = 200
        try:
            page = make(visit)
        except OttlaError as error:
            status, page = _failed(error)
        if is_json:
            if status != 200:
                return JSONResponse({"error": page.notes[0].text}, status)
            return Response(as_json(page), status, media_type="application/json")
        is_part = request.query_params.get("part") == "1"
        return with_cookie(Response(as_html(page, visit, request.url.path, is_part=is_part), status, media_type="text/html"), visit.session)

    def _act(self, handler: ActionHandler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self.session_of(request)
            if session.desk is None:
                return _to_login(request)
            form = await form_of(request)
            visit = self._visit(request, session, form or {})
            if form is None:
                return _sentence_page(visit, "The form is larger than 2 MiB or has more than 500 fields; nothing was done.", 413)
            return await run_in_threadpool(self._acted, handler, visit, form.get("token", ""))

        return endpoint

    def _acted(self, handler: ActionHandler, visit: Visit, token: str) -> Response:
        """Executes an action, unless its form was already sent, and redirects to the page that shows its result."""
        results = visit.session.results
        try:
            if self.settings.is_read_only:
                raise PageError("This console only reads; nothing was done.", 403)
            if visit.session.take(token):
                try:
                    results[token] = handler.act(visit)
                except BaseException:
                    results[token] = Done("This form was sent before, and its action failed; open the page again.", "/", "bad")
                    raise
                visit.desk.snapshot.renew()
        except OttlaError as error:
            status, page = _failed(error)
            return _page_response(visit, page, status)
        done = results.get(token)
        if done is None:
            return _sentence_page(visit, "This form is being executed already. Wait a moment and open the page again.", 409)
        joint = "&" if "?" in done.href else "?"
        return with_cookie(RedirectResponse(f"{done.href}{joint}{urlencode({'done': token})}", 303), visit.session)

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(openapi.document())

    def _tail(self, *, is_json: bool) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self.session_of(request)
            return _to_login(request, is_json=is_json) if session.desk is None else await streams.tail(session.desk, request)

        return endpoint

    def _download(self, make: Callable[[Visit], Response], *, is_json: bool) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self.session_of(request)
            if session.desk is None:
                return _to_login(request, is_json=is_json)
            visit = self._visit(request, session, {})
            try:
                return await run_in_threadpool(make, visit)
            except OttlaError as error:
                status, page = _failed(error)
                return JSONResponse({"error": page.notes[0].text}, status) if is_json else _page_response(visit, page, status)

        return endpoint

    async def _missing(self, request: Request, error: Exception) -> Response:
        return await self._sorry(request, "There is no such page.", getattr(error, "status_code", 404))

    async def _broken(self, request: Request, error: Exception) -> Response:
        return await self._sorry(request, "The console failed at this page; its log has the reason.", 500)

    async def _sorry(self, request: Request, sentence: str, status: int) -> Response:
        session = self.session_of(request)
        if session.desk is None or request.url.path.startswith("/api/"):
            return JSONResponse({"error": sentence}, status)
        return _sentence_page(self._visit(request, session, {}), sentence, status)


class _Assets(StaticFiles):
    """Serves scripts and styles, which a browser caches for a day. The names of vendored files contain their versions."""

    def file_response(self, *args: Any, **named: Any) -> Response:
        response = super().file_response(*args, **named)
        response.headers["cache-control"] = "max-age=86400" if "vendor" in str(args[0]) else "no-cache"
        return response


def _to_login(request: Request, *, is_json: bool = False) -> Response:
    return JSONResponse({"error": "log in first"}, 401) if is_json else RedirectResponse(LOGIN, 303)


def with_cookie(response: Response, session: Session) -> Response:
    response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict", path="/")
    return response


def _failed(error: OttlaError) -> tuple[int, Page]:
    """Returns the HTTP status and the page for an error: one sentence."""
    if isinstance(error, PageError):
        return error.status, Page("Not done", notes=[Note(str(error), "bad")], forms=[error.form] if error.form is not None else [])
    if isinstance(error, ApiError):
        sentence = f"{error.message} ({error.code.name})"
        return STATUS_OF.get(error.code, 400), Page("Refused", notes=[Note(sentence, "bad")])
    title = "The cluster does not answer" if isinstance(error, TransportError) else "Not available"
    return 503, Page(title, notes=[Note(str(error), "bad")])


def _sentence_page(visit: Visit, sentence: str, status: int) -> Response:
    return _page_response(visit, Page("Not done" if status != 404 else "Not found", notes=[Note(sentence, "bad")]), status)


def _page_response(visit: Visit, page: Page, status: int) -> Response:
    return with_cookie(Response(as_html(page, visit, ""), status, media_type="text/html"), visit.session)


