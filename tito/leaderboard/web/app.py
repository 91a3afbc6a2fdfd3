"""The application: routes, templates, guards."""

from __future__ import annotations

import logging
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException

from tito.leaderboard.database import Database
from tito.leaderboard.web import api, instructor, pages, signin, views
from tito.leaderboard.web.guard import AccessLog, BodyLimit, RateLimit, SecurityHeaders

HERE = Path(__file__).parent
AWAY_SECONDS = 2
log = logging.getLogger("tito.leaderboard")


def create_app(database: Database, *, https: bool = False) -> FastAPI:
    """The server's application.

    Args:
        https: people reach it by HTTPS only, so its cookies may be marked Secure.
    """
    app = FastAPI(title="TinyTorch leaderboard", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.database, app.state.https = database, https
    app.state.templates = Jinja2Templates(HERE / "templates", context_processors=[views.common])
    app.state.templates.env.filters.update(views.FILTERS)
    for name in app.state.templates.env.list_templates():  # or the first visitors wait for each
        app.state.templates.env.get_template(name)
    app.state.boards = views.Cache(views.BOARD_SECONDS)
    app.state.viewers = views.Cache(views.VIEWER_SECONDS)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    for router in (signin.router, pages.router, instructor.router, api.router):
        app.include_router(router)
    app.add_exception_handler(signin.NotSignedIn, signin.to_sign_in)
    app.add_exception_handler(HTTPException, _say)
    app.add_exception_handler(RequestValidationError, _say_invalid)
    app.add_exception_handler(OperationalError, _say_away)
    for unfit in (OverflowError, DataError, UnicodeEncodeError):  # SQLite's, PostgreSQL's, Python's
        app.add_exception_handler(unfit, _say_unfit)
    # The last one added sees a request first.
    for guard in (RateLimit, BodyLimit, SecurityHeaders, AccessLog):
        app.add_middleware(guard)
    return app


def _say(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return views.refuse(request, error.status_code, str(error.detail), dict(error.headers or {}))


def _say_away(request: Request, error: Exception) -> Response:
    """The database was killed, starts, or is locked: nothing of this request was kept."""
    assert isinstance(error, OperationalError)
    log.error("the database does not answer: %s", error.orig)
    text = "the database does not answer: try again in a moment"
    return views.refuse(request, 503, text, {"Retry-After": str(AWAY_SECONDS)})


def _say_unfit(request: Request, error: Exception) -> Response:
    """A number that no column has room for, or a text with a NUL or half a letter of UTF-16."""
    log.warning("a request that the database cannot take: %s", type(error).__name__)
    return views.refuse(request, 422, "the request is not as it should be: a value is out of range")


def _say_invalid(request: Request, error: Exception) -> Response:
    """Which field, and what about it, and never the value: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(
        f"{'.'.join(str(part) for part in each['loc'][1:])}: {each['msg']}"
        for each in error.errors()[:5]
    )
    return views.refuse(request, 422, f"the request is not as it should be: {wrong}")
