"""Makes templates with the published Python SDK, as its users would.

Reads PANDASTACK_API, PANDASTACK_API_KEY, IMAGE_REF and ROOTFS. Each check prints its name; the first that fails ends the script.
"""

import os
import pathlib
import tempfile

import pandastack
from pandastack import Client, Sandbox
from pandastack.exceptions import BadRequestError, NotFoundError, TemplateBuildError

client = Client(timeout=300)
pandastack.sandbox.set_default_client(client)


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def register():
    build = client.templates.register("py-image", os.environ["IMAGE_REF"], size_mb=256)
    assert build.status == "queued", build
    build = client.templates.wait_for_build(build.id, poll_interval=0.5)
    assert build.is_done and build.name == "py-image", build
    with Sandbox.create(template="py-image") as sandbox:
        assert sandbox.exec("read mark < /mark; echo $mark").stdout == "from the registry\n"
    raises(BadRequestError, lambda: client.templates.register("py-image", os.environ["IMAGE_REF"]))
    raises(BadRequestError, lambda: client.templates.register("minimal", os.environ["IMAGE_REF"]))
    raises(BadRequestError, lambda: client.templates.register("x", "registry.invalid/x"))


def rootfs():
    build = client.templates.build("py-rootfs", rootfs_tar=os.environ["ROOTFS"], size_mb=256)
    assert build.is_done, build
    with Sandbox.create(template="py-rootfs") as sandbox:
        assert sandbox.exec("read mark < /mark; echo $mark").stdout == "from the registry\n"


def dockerfile_with_nested_context():
    with tempfile.TemporaryDirectory() as folder:
        nested = pathlib.Path(folder, "src", "deep")
        nested.mkdir(parents=True)
        (nested / "word.txt").write_text("deep\n")
        pathlib.Path(folder, "rootfs").write_text("a file like any other\n")
        text = "FROM minimal\nWORKDIR /app\nCOPY . .\nRUN cat src/deep/word.txt rootfs > made\n"
        build = client.templates.build_from_dockerfile("py-docker", text, context_dir=folder)
    lines = list(client.templates.build_logs(build.id))
    build = client.templates.get_build(build.id)
    assert build.is_done, (build, lines)
    assert any("RUN" in line for line in lines), lines
    assert list(client.templates.build_logs(build.id, follow=False)) == lines
    with Sandbox.create(template="py-docker") as sandbox:
        assert sandbox.exec("cat made").stdout == "deep\na file like any other\n"


def failure_is_told():
    build = client.templates.build_from_dockerfile("py-fails", "FROM minimal\nRUN exit 7\n")
    error = raises(TemplateBuildError, lambda: client.templates.wait_for_build(build.id, poll_interval=0.5))
    assert "line 2" in str(error), error
    assert client.templates.get_build(build.id).is_failed


def listed_and_deleted():
    names = [template.name for template in client.templates.list()]
    assert {"minimal", "py-image", "py-docker"} <= set(names), names
    assert client.templates.get("py-docker").name == "py-docker"
    assert len(client.templates.builds()) >= 3
    for name in ["py-image", "py-rootfs", "py-docker"]:
        client.templates.delete(name)
        raises(NotFoundError, lambda: client.templates.get(name))
    raises(BadRequestError, lambda: client.templates.delete("minimal"))


for check in [register, rootfs, dockerfile_with_nested_context, failure_is_told, listed_and_deleted]:
    check()
    print(f"ok {check.__name__}")
