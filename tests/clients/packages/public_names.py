"""Prints what a program can name of the `pandastack` that is installed, one a line: names of modules, members, parameters.

Run in two environments, it tells what one of them lacks.
"""

import importlib
import inspect
import pkgutil

import pandastack

# What programs make themselves. The rest they are given, so how it is made is the package's own business.
MADE_BY_PROGRAMS = {"Client", "Candidate", "CmaConfig", "Worker"}

CLIENT = pandastack.Client(api_key="k", api_url="http://127.0.0.1:1")
# Members that only instances have.
INSTANCES = {
    pandastack.Client: CLIENT,
    pandastack.Sandbox: pandastack.Sandbox.from_dict({"id": "box"}, CLIENT),
}


def modules():
    yield pandastack
    for found in pkgutil.iter_modules(pandastack.__path__, "pandastack."):
        if not found.name.split(".")[-1].startswith("_"):
            yield importlib.import_module(found.name)


def names(module):
    """What a module says is public; else what it defines, which is not what it imports."""
    if hasattr(module, "__all__"):
        return module.__all__
    defined = {name: getattr(value, "__module__", None) for name, value in vars(module).items()}
    mine = {name for name, at in defined.items() if name.isupper() or at == module.__name__}
    return {name for name in mine if not name.startswith("_")} - {"T", "TYPE_CHECKING"}


def members(kind):
    found = set(dir(INSTANCES.get(kind, kind)))
    for base in kind.__mro__:
        found.update(vars(base).get("__annotations__", {}))
    return {name for name in found if not name.startswith("_") and not hasattr(Exception, name)}


def parameters(function):
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            yield "**"
        elif one.kind is not one.VAR_POSITIONAL and one.name not in ("self", "cls") and not one.name.startswith("_"):
            yield one.name


def described(path, value):
    yield path
    if inspect.isclass(value):
        for name in members(value):
            yield from described(f"{path}.{name}", getattr(value, name, None))
        if value.__name__ not in MADE_BY_PROGRAMS:
            return
    if callable(value) and not path.endswith(".from_dict"):
        yield from (f"{path}({name})" for name in parameters(value))


found = set()
for module in modules():
    for name in names(module):
        found.update(described(f"{module.__name__}:{name}", getattr(module, name)))
print("\n".join(sorted(found)))
