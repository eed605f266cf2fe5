"""What is sent for builds, functions, schedules, databases and apps, as the wire contract has it.

Not every server has these, so they are shown against a server that writes down what it is sent.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from conftest import Answer, Driver, Request

from pandastack import PandastackError, TemplateBuildError

Sent = tuple[str, str, Optional[Any]]

REQUESTS: list[tuple[Callable[[Any], Any], Sent]] = [
    (lambda c: c.templates.delete("t"), ("DELETE", "/templates/t", None)),
    (lambda c: c.templates.builds(), ("GET", "/templates/builds", None)),
    (lambda c: c.templates.get_build("b"), ("GET", "/templates/builds/b", None)),
    (lambda c: c.functions.list(), ("GET", "/functions", None)),
    (lambda c: c.functions.get("f"), ("GET", "/functions/f", None)),
    (
        lambda c: c.functions.update("f", env={"A": "b"}, public=True),
        ("PATCH", "/functions/f", {"env": {"A": "b"}, "public": True}),
    ),
    (lambda c: c.functions.delete("f"), ("DELETE", "/functions/f", None)),
    (lambda c: c.functions.invoke("f"), ("POST", "/functions/f/invoke", {})),
    (lambda c: c.functions.trigger("f", input=[1]), ("POST", "/functions/f/invoke", {"input": [1]})),
    (lambda c: c.functions.runs("f"), ("GET", "/functions/f/runs", None)),
    (lambda c: c.functions.metrics("f", 48), ("GET", "/functions/f/metrics?period=48", None)),
    (
        lambda c: c.schedules.create("n", "f", "* * * * *"),
        ("POST", "/schedules", {"name": "n", "function_id": "f", "cron": "* * * * *", "paused": False}),
    ),
    (lambda c: c.schedules.list(), ("GET", "/schedules", None)),
    (lambda c: c.schedules.get("s"), ("GET", "/schedules/s", None)),
    (lambda c: c.schedules.update("s", paused=False), ("PATCH", "/schedules/s", {"paused": False})),
    (lambda c: c.schedules.delete("s"), ("DELETE", "/schedules/s", None)),
    (lambda c: c.schedules.trigger("s"), ("POST", "/schedules/s/trigger", {})),
    (lambda c: c.schedules.runs("s"), ("GET", "/schedules/s/runs", None)),
    (lambda c: c.databases.list(), ("GET", "/databases", None)),
    (lambda c: c.databases.get("d"), ("GET", "/databases/d", None)),
    (lambda c: c.databases.delete("d"), ("DELETE", "/databases/d", None)),
    (lambda c: c.databases.connection("d"), ("GET", "/databases/d/connection", None)),
    (lambda c: c.databases.failover("d"), ("POST", "/databases/d/failover", None)),
    (lambda c: c.databases.update("d", always_on=False), ("PATCH", "/databases/d", {"always_on": False})),
    (lambda c: c.databases.wake("d"), ("POST", "/databases/d/wake", None)),
    (lambda c: c.databases.clone("d", size="4g", wait=False), ("POST", "/databases/d/clone", {"size": "4g"})),
    (lambda c: c.databases.reset_credentials("d"), ("POST", "/databases/d/reset-credentials", None)),
    (lambda c: c.apps.create("n", "g", port=80), ("POST", "/apps", {"name": "n", "git_url": "g", "port": 80})),
    (lambda c: c.apps.list(), ("GET", "/apps", None)),
    (lambda c: c.apps.previews(), ("GET", "/apps", None)),
    (lambda c: c.apps.get("a"), ("GET", "/apps/a", None)),
    (lambda c: c.apps.update("a", port=81), ("PATCH", "/apps/a", {"port": 81})),
    (lambda c: c.apps.delete("a"), ("DELETE", "/apps/a", None)),
    (lambda c: c.apps.deploy("a"), ("POST", "/apps/a/deploys", None)),
    (lambda c: c.apps.deploy("a", git_ref="r"), ("POST", "/apps/a/deploys", {"git_ref": "r"})),
    (lambda c: c.apps.deployments("a"), ("GET", "/apps/a/deploys", None)),
    (lambda c: c.apps.deployment("a", "d"), ("GET", "/apps/a/deploys/d", None)),
    (lambda c: c.apps.rollback("a"), ("POST", "/apps/a/rollback", None)),
    (lambda c: c.apps.list_env("a"), ("GET", "/apps/a/env", None)),
    (lambda c: c.apps.set_env("a", "K", "v"), ("PUT", "/apps/a/env/K", {"value": "v", "secret": False, "scope": "all"})),
    (lambda c: c.apps.unset_env("a", "K"), ("DELETE", "/apps/a/env/K", None)),
    (
        lambda c: c.apps.import_env("a", "K=v", secret=True),
        ("POST", "/apps/a/env/import", {"dotenv": "K=v", "secret": True, "scope": "all"}),
    ),
    (lambda c: c.apps.add_domain("a", "x.example"), ("POST", "/apps/a/domains", {"domain": "x.example"})),
    (lambda c: c.apps.domains("a"), ("GET", "/apps/a/domains", None)),
    (lambda c: c.apps.get_domain("a", "x.example"), ("GET", "/apps/a/domains/x.example", None)),
    (lambda c: c.apps.remove_domain("a", "x.example"), ("DELETE", "/apps/a/domains/x.example", None)),
    (lambda c: c.apps.preview_repos(), ("GET", "/preview-repos", None)),
    (
        lambda c: c.apps.enable_preview_repo(7, repo_full_name="o/r"),
        ("POST", "/preview-repos", {"github_repo_id": 7, "repo_full_name": "o/r"}),
    ),
    (lambda c: c.apps.disable_preview_repo(7), ("DELETE", "/preview-repos/7", None)),
    (lambda c: c.apps.list_preview_env(7), ("GET", "/repos/7/preview-env", None)),
    (lambda c: c.apps.set_preview_env(7, "K", "v"), ("PUT", "/repos/7/preview-env/K", {"value": "v", "secret": False})),
    (lambda c: c.apps.unset_preview_env(7, "K"), ("DELETE", "/repos/7/preview-env/K", None)),
    (
        lambda c: c.apps.import_preview_env(7, "K=v"),
        ("POST", "/repos/7/preview-env/import", {"dotenv": "K=v", "secret": False}),
    ),
]


def sent(request: Request) -> Sent:
    query = "?" + "&".join(f"{key}={value}" for key, value in request.query.items()) if request.query else ""
    return request.method, request.path[len("/v1") :] + query, request.json


def test_requests(driver: Driver) -> None:
    # One answer that will do for all: an object with a list in it wherever one is looked for.
    driver.server.answers = [Answer(200, {"id": "x", "connection_url": "u", "items": [{"id": "x"}]})]
    for work, wanted in REQUESTS:
        driver.server.requests.clear()
        driver.run(work)
        assert [sent(one) for one in driver.server.requests] == [wanted]


def test_lists_wherever_they_stand(driver: Driver) -> None:
    for name, work in {
        "env": lambda c: c.apps.list_env("a"),
        "domains": lambda c: c.apps.domains("a"),
        "repos": lambda c: c.apps.preview_repos(),
        "items": lambda c: c.databases.list(),
    }.items():
        for body in ({name: [{"key": "K"}]}, [{"key": "K"}]):
            driver.server.answers = [Answer(200, body)]
            assert driver.run(work) == [{"key": "K"}]


def test_builds(driver: Driver, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pandastack._async import builds as async_builds
    from pandastack._sync import builds as sync_builds

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(async_builds, "sleep", no_wait)
    monkeypatch.setattr(sync_builds, "sleep", waits.append)
    queued = Answer(202, {"id": "b", "name": "t", "status": "queued"})
    done = Answer(200, {"id": "b", "name": "t", "status": "done"})
    driver.server.answers = [queued]
    assert driver.run(lambda c: c.templates.register("t", "example/image:1", memory_mb=512)).id == "b"
    request = driver.server.requests[0]
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.body == b"name=t&image_ref=example%2Fimage%3A1&size_mb=1024&memory_mb=512"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("in the context")
    (tmp_path / "Dockerfile").write_text("FROM base\nCOPY src /src\n")
    driver.server.requests.clear()
    driver.run(lambda c: c.templates.build_from_dockerfile("t", tmp_path / "Dockerfile", context_dir=tmp_path))
    body = driver.server.requests[0].body
    assert driver.server.requests[0].headers["content-type"].startswith("multipart/form-data")
    assert b'name="dockerfile"\r\n\r\nFROM base\nCOPY src /src\n' in body
    assert b'name="src/a.txt"; filename="src/a.txt"' in body and b"in the context" in body
    driver.server.requests.clear()
    driver.run(lambda c: c.templates.build_from_dockerfile("t", "FROM base\nRUN true"))
    assert driver.server.requests[0].body == b"name=t&dockerfile=FROM+base%0ARUN+true&size_mb=1024"
    (tmp_path / "root.tar").write_bytes(b"an archive")
    driver.server.answers = [queued, Answer(200, {"id": "b", "status": "running"}), done]
    assert driver.run(lambda c: c.templates.build("t", rootfs_tar=tmp_path / "root.tar")).is_done
    assert waits == [1.0]
    driver.server.answers = [queued, Answer(200, {"id": "b", "status": "failed", "error": "no such base"})]
    with pytest.raises(TemplateBuildError, match="no such base"):
        driver.run(lambda c: c.templates.build("t", tmp_path / "Dockerfile"))
    with pytest.raises(ValueError, match="not both"):
        driver.run(lambda c: c.templates.build("t"))
    said = Answer(200, b"data: one\n\ndata: two\n\nevent: done\ndata: end\n\n", {"Content-Type": "text/event-stream"})
    driver.server.answers = [queued, said, done]
    driver.server.requests.clear()
    lines: list[str] = []
    assert driver.run(
        lambda c: c.templates.push("t", tmp_path / "Dockerfile", platform="linux/amd64", on_log=lines.append)
    ).is_done
    assert lines == ["one", "two"]
    assert b'name="src/a.txt"; filename="src/a.txt"' in driver.server.requests[0].body
    driver.server.answers = [queued]
    assert driver.run(lambda c: c.templates.push("t", tmp_path / "Dockerfile", wait=False)).status == "queued"


def test_logs_of_builds_end(driver: Driver) -> None:
    body = b'data: one\n\n: ping\n\ndata: {"line": "stays as it is"}\n\nevent: done\ndata: end\n\ndata: never\n\n'
    driver.server.answers = [Answer(200, body, {"Content-Type": "text/event-stream"})]
    wanted = ["one", '{"line": "stays as it is"}']
    assert driver.run(lambda c: c.templates.build_logs("b")) == wanted
    assert driver.server.requests[-1].query == {"follow": "1"}
    assert driver.run(lambda c: c.templates.build_logs("b", follow=False)) == wanted
    assert driver.server.requests[-1].query == {}
    assert driver.run(lambda c: c.apps.deploy_logs("a", "d")) == wanted


def test_functions_are_sent_as_bundles(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("print(1)")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "large").write_text("x")
    driver.server.answers = [Answer(200, []), Answer(201, {"id": "f"}), Answer(200, {"id": "f", "version": 1})]
    assert driver.run(lambda c: c.functions.deploy("n", "python", tmp_path))["version"] == 1
    listed, made, deployed = driver.server.requests
    assert sent(made)[2] == {
        "name": "n",
        "runtime": "python",
        "entrypoint": "handler.py",
        "template": "code-interpreter",
        "public": False,
    }
    assert deployed.path == "/v1/functions/f/deploy" and b'name="entrypoint"\r\n\r\nhandler.py' in deployed.body
    start = deployed.body.index(b"\x1f\x8b")
    with tarfile.open(fileobj=io.BytesIO(deployed.body[start:])) as archive:
        assert archive.getnames() == ["handler.py"]
    driver.server.answers = [Answer(201, {"id": "f"})]
    driver.run(lambda c: c.functions.create("n", "python", tmp_path / "handler.py"))
    assert driver.server.requests[-1].json["code"] == "cHJpbnQoMSk="


def test_databases_are_waited_for(driver: Driver) -> None:
    ready = Answer(200, {"id": "d", "status": "running", "connection_url": "postgres://"})
    driver.server.answers = [Answer(202, {"id": "d", "status": "provisioning"}), ready]
    assert driver.run(lambda c: c.databases.create(label="l"))["connection_url"] == "postgres://"
    assert driver.server.requests[0].json == {"label": "l"}
    driver.server.answers = [Answer(202, {"id": "d"}), Answer(200, {"id": "d", "status": "failed", "error": "no disk"})]
    with pytest.raises(PandastackError, match="no disk"):
        driver.run(lambda c: c.databases.clone("s"))
    driver.server.answers = [Answer(200, {"id": "d", "status": "provisioning"})]
    with pytest.raises(TimeoutError):
        driver.run(lambda c: c.databases.wait_until_ready("d", timeout=0))


def test_templates_are_waited_for_while_they_move(driver: Driver, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    from pandastack._async import builds as async_builds
    from pandastack._async import transport
    from pandastack._sync import builds as sync_builds

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(async_builds, "sleep", no_wait)
    monkeypatch.setattr(sync_builds, "sleep", waits.append)
    for module in (async_builds, sync_builds):
        monkeypatch.setattr(module, "time", transport.time)

    def at(changed_at: str) -> Answer:
        return Answer(200, {"name": "t", "status": "preparing", "progress_detail": {"step": "s", "changed_at": changed_at}})

    ready = Answer(200, {"name": "t", "status": "ready"})
    driver.server.answers = [*(at(f"t{n // 3}") for n in range(20)), ready]
    assert driver.run(lambda c: c.templates.wait("t"), template_stall_seconds=5).status == "ready"
    for given in ({}, {"timeout_seconds": 3}):
        driver.server.answers = [at("t0")]
        with pytest.raises(TemplateBuildError, match="not ready"):
            driver.run(lambda c, given=given: c.templates.wait("t", **given), template_stall_seconds=5)
