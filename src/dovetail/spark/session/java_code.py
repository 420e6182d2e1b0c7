"""Compiles Java classes, shipped as source text, in the JVM of a running session.

Spark includes the compiler (Janino) with which it compiles its own queries. So there is no jar to install and no
session to restart, and the classes are compiled against the running Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException


class NotCompiled(Exception):  # noqa: N818  it is caught: callers decide what it means
    """This Spark lacks something that a class uses. The message says what."""


def compile_classes(gateway: Any, package: str, names: Sequence[str]) -> Any:
    """The loader of classes whose sources are in a Python package. Each may use the ones before it."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in names:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        try:
            compiler.cook(f"{name}.java", (files(package) / f"{name}.java").read_text())
        except (Py4JJavaError, PySparkException) as error:
            raise NotCompiled(str(error).split(": ", 1)[-1].splitlines()[0]) from error
        loader = compiler.getClassLoader()
    return loader


def new_object(gateway: Any, loader: Any, name: str) -> Any:
    """An instance of a class, created without arguments."""
    no_kinds = gateway.new_array(gateway.jvm.java.lang.Class, 0)
    nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
    return loader.loadClass(name).getDeclaredConstructor(no_kinds).newInstance(nothing)
