"""The login of a console with several users: a user logs in to the cluster by SASL, and acts under their own rights."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.base.errors import OttlaError
from ottla.console.bodies import form_of
from ottla.console.desk import Desk, Settings
from ottla.console.model import PageError
from ottla.console.rendering import environment
from ottla.console.safety import COOKIE, Session, Sessions


def add_login(settings: Settings, sessions: Sessions, routes: list[BaseRoute]) -> None:
    """Adds the pages to log in and out."""
    if not settings.needs_login:
        return

    def answer(session: Session, sentence: str = "", status: int = 200) -> Response:
        sessions.add(session)
        text = environment().get_template("login.html").render(token=session.new_token(), sentence=sentence)
        response = Response(text, status, media_type="text/html")
        response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict", path="/")
        return response

    async def show(request: Request) -> Response:
        return answer(sessions.find(request.cookies.get(COOKIE, "")) or Session())

    async def log_in(request: Request) -> Response:
        before = sessions.find(request.cookies.get(COOKIE, ""))
        form = await form_of(request) or {}
        try:
            if before is None or not before.take(form.get("token", "")):
                raise PageError("This form was made for another session or was sent before. Try again.", 403)
            desk = await run_in_threadpool(_open, settings, form.get("user", ""), form.get("password", ""))
        except OttlaError as error:
            return answer(before or Session(), str(error), 403)
        sessions.remove(before)
        session = Session()  # a new cookie, so that a cookie from before the login has no rights
        session.desk, session.user = desk, form.get("user", "")
        sessions.add(session)
        response: Response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict", path="/")
        return response

    async def log_out(request: Request) -> Response:
        session = sessions.find(request.cookies.get(COOKIE, ""))
        form = await form_of(request) or {}
        try:
            if session is not None and session.take(form.get("token", "")):
                sessions.remove(session)
        except PageError as error:
            return answer(session or Session(), str(error), 403)
        return RedirectResponse("/login", 303)

    routes += [
        Route("/login", show), Route("/login", log_in, methods=["POST"]), Route("/logout", log_out, methods=["POST"]),
    ]  # fmt: skip


def _open(settings: Settings, user: str, password: str) -> Desk:
    """Returns a desk with the user's rights. Raises `OttlaError` if the cluster refuses the login."""
    if not user:
        raise PageError("Give the name of a user.", 403)
    properties = {**settings.properties, "sasl.username": user, "sasl.password": password}
    properties.pop("sasl.jaas.config", None)
    alone = settings._replace(properties=properties)
    desk = Desk(alone)
    try:
        desk.cluster.refresh([])
    except OttlaError:
        desk.release()
        raise
    return desk
