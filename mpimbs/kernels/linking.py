"""How numba compiles kernels: what only other kernels call becomes a part of them, compiled once, by few passes.

numba optimizes every jitted function by itself, makes machine code of it and of all that it calls, and a wrapper for
Python; a caller then takes all that once more. Of the some three hundred functions that an evaluation is made of, only
the outermost is ever called. A `KernelPart` is therefore left as it was lowered, in a module of its own without those
that it calls. What others call rather than inline, an `Apart`, is optimized and compiled once and kept
(`machine_code`); the `Whole` that Python calls is made of the parts that it inlines, and linked to the others' code.

Kernels own no arrays, raise nothing and have no closures: what numba does for these is left out, in its passes too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding
from numba.core import errors, event, sigutils, typed_passes, types, untyped_passes
from numba.core.bytecode import FunctionIdentity
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, CompileResult
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.environment import Environment
from numba.core.funcdesc import PythonFunctionDescriptor, default_mangler
from numba.core.ir_utils import build_definitions
from numba.core.rewrites import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.typing import signature as typing_signature

from mpimbs.kernels import machine_code


class _NoEnvironment:
    """A stand-in for numba's code generator, where it would be told the environment of a function that Python calls."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """There is none."""


class _Kernels(JITCodeLibrary):
    """Code whose functions are not optimized one by one."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class KernelPart(_Kernels):
    """The code of a function that only compiled ones call."""

    _shared: Any = None  # its own code, fit to be linked into others
    _linked: Any = None  # that with all that it calls

    @property
    def codegen(self) -> Any:
        return _NoEnvironment

    def finalize(self) -> None:
        """Leave the code as it is."""
        self._raise_if_finalized()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is none: Python can't call it."""
        return 0

    def alone(self) -> Any:
        """Module of this function without those that it calls."""
        if self._shared is None:
            self._ensure_finalized()
            self._shared = self._final_module
            for function in self._shared.functions:
                if not function.is_declaration and function.linkage == binding.Linkage.external:
                    function.linkage = "linkonce_odr"
        return self._shared

    def _get_module_for_linking(self) -> Any:
        """Module with all that it inlines: for libraries that numba makes itself."""
        machine_code.take_code()
        if self._linked is None:
            self._linked = self.alone().clone()
            for library in reached_by(self)[0]:
                called = _Alone(library) if isinstance(library, KernelPart) else library
                self._linked.link_in(called._get_module_for_linking(), preserve=True)
        return self._linked


class Whole(_Kernels):
    """The code of a function that Python calls, with all that it inlines."""

    needed: tuple[str, ...] = ()  # symbols of what it calls

    def finalize(self) -> None:
        """Link every part once, optimize, compile."""
        machine_code.take_code()
        inlined, called = reached_by(self)
        self.needed = tuple(part.symbol for part in called)
        self._linking_libraries = [_Alone(p) if isinstance(p, KernelPart) else p for p in inlined]
        super().finalize()
        self._linking_libraries = []

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)
        # What was not inlined has names that are unique in one process; kept code of another's would be taken for it.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == binding.Linkage.linkonce_odr:
                function.linkage = "internal"


class Apart(KernelPart):
    """A part that is called rather than inlined: the same machine code, hence the same bits, wherever it is used."""

    symbol = ""  # of its code; none where it can't be kept: its callers take it into theirs

    def alone(self) -> Any:
        """Module of this function alone."""
        if self._shared is None:
            for function in super().alone().functions:
                if not function.is_declaration:
                    function.add_function_attribute("noinline")
        return super().alone()

    def compile(self, returned: Any) -> None:
        """Have machine code made of it and of all that it inlines, and kept, while its callers are read."""
        inlined, called = reached_by(self)
        parts = [self._final_module.as_bitcode(), *(_bitcode(library) for library in inlined)]
        machine_code.compile_meanwhile(self.symbol, parts, returned, tuple(part.symbol for part in called))


def _bitcode(library: Any) -> bytes:
    """What a library has by itself, as LLVM's bitcode."""
    kept = vars(library).get("bitcode")
    if kept is None:
        part = _Alone(library) if isinstance(library, KernelPart) else library
        kept = library.bitcode = part._get_module_for_linking().as_bitcode()
    return kept


class _Alone:
    """A part as `CPUCodeLibrary.finalize` links it."""

    def __init__(self, part: KernelPart) -> None:
        self._part, self._reload_init = part, part._reload_init

    def _get_module_for_linking(self) -> Any:
        return self._part.alone()


def reached_by(library: Any) -> tuple[list[Any], list[Apart]]:
    """All that a library links, through its parts too, each once, callers before what they call; and what it calls.

    LLVM leaves out what nobody has called so far.
    """
    found: dict[int, Any] = {}
    called: dict[int, Apart] = {}

    def visit(item: Any) -> None:
        if isinstance(item, Apart) and item.symbol:
            called[id(item)] = item
        elif id(item) not in found:
            for other in getattr(item, "_linking_libraries", ()):
                if isinstance(item, KernelPart) or isinstance(other, KernelPart):
                    visit(other)
            found[id(item)] = item

    for item in library._linking_libraries:
        visit(item)
    return list(reversed(found.values())), list(called.values())


_RESOLVED: dict[Any, Any] = {}


@contextmanager
def _resolved_once(context: Any) -> Iterator[None]:
    """Have numba ask for the result of a function of the same types once: for a sum of two numbers it tries dozens of
    templates, and words for each why it does not fit; 20 % less time. Nor does it tell those who listen of each lock
    that LLVM is given, of whom there is one more for every call within a call; 3 % less."""
    ask = type(context).resolve_function_type

    def resolve(function: Any, arguments: Any, named: Any) -> Any:
        key = (function, *arguments, *dict(named).items())
        if not all(isinstance(argument, types.Type) for argument in arguments):
            return ask(context, function, arguments, named)
        if key not in _RESOLVED:
            _RESOLVED[key] = ask(context, function, arguments, named)
        return _RESOLVED[key]

    if "resolve_function_type" in vars(context):  # a kernel that another one calls, which is being compiled
        yield
        return
    # Words without colours: for each, colorama, where it is installed, would rewire the terminal.
    colours: Any = errors.termcolor()
    context.resolve_function_type, colours._markup = resolve, lambda words, *_, **__: words
    tell = event.broadcast
    event.broadcast = lambda told: None if told.kind == "numba:llvm_lock" else tell(told)
    try:
        yield
    finally:
        del context.resolve_function_type, colours._markup
        event.broadcast = tell


@register_pass(mutates_CFG=True, analysis_only=False)
class _NamedLowering(typed_passes.NativeLowering):
    """Lowering of a function whose code has a name of its own."""

    _name = "named_lowering"

    def run_pass(self, state: Any) -> bool:
        context, symbol = state.targetctx, state.library.symbol
        if not symbol:
            return bool(super().run_pass(state))
        before = context.mangler
        context.mangler = _named(symbol, state.func_id.unique_id, before)
        try:
            return bool(super().run_pass(state))
        finally:
            del context.mangler


@register_pass(mutates_CFG=True, analysis_only=False)
class _TypeInference(typed_passes.BaseTypeInference):
    """Type inference; arrays may be returned, which nobody owns."""

    _name = "kernel_type_inference"

    def run_pass(self, state: Any) -> bool:
        failed = f'Function "{state.func_id.func_name}" failed type inference'
        with typed_passes.fallback_context(state, failed), _resolved_once(state.typingctx):
            found = typed_passes.type_inference_stage(
                state.typingctx, state.targetctx, state.func_ir, state.args, state.return_type, state.locals
            )
        state.typemap, state.return_type, state.calltypes = found.typemap, found.return_type, found.calltypes
        state.typing_errors = found.typing_errors
        if isinstance(state.return_type, types.Array) and not state.flags.no_cpython_wrapper:
            raise errors.NumbaTypeError("a kernel that Python calls returns no array: what it writes is given to it")
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _Rewrites(untyped_passes.GenericRewrites):
    """Items of tuples by constants, and what else is written otherwise before types are known."""

    _name = "kernel_rewrites"

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks
        for kind in rewrite_registry.rewrites["before-inference"]:
            rewrite = kind(state)
            for place in blocks:
                while rewrite.match(state.func_ir, blocks[place], state.typemap, state.calltypes):
                    blocks[place] = rewrite.apply()
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _ReconstructSSA(untyped_passes.ReconstructSSA):
    """A name for each value that a variable is given."""

    _name = "kernel_reconstruct_ssa"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _StripPhis(typed_passes.PreLowerStripPhis):
    """Choices between what branches bring as assignments in them."""

    _name = "kernel_strip_phis"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        return True


# Without numba's account of how long variables live, made anew after most passes: nobody owns what they hold.
_PASSES: tuple[type[FunctionPass], ...] = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.DeadBranchPrune,
    _Rewrites,
    untyped_passes.InlineInlinables,
    _ReconstructSSA,
    untyped_passes.DeadBranchPrune,
    _TypeInference,
    _StripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class PartCompiler(CompilerBase):
    """Compiles a function as a `KernelPart`."""

    library: type[JITCodeLibrary] = KernelPart
    lowering: type[FunctionPass] = typed_passes.NativeLowering

    def define_pipelines(self) -> list[PassManager]:
        """Give the passes that kernels need."""
        manager = PassManager("kernel")
        for one in _PASSES:
            used = self.lowering if one is typed_passes.NativeLowering else one
            manager.add_pass(used, used.__name__)
        manager.finalize()
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return [manager]


class ApartCompiler(PartCompiler):
    """Compiles a function as an `Apart`."""

    library = Apart
    lowering = _NamedLowering

    def define_pipelines(self) -> list[PassManager]:
        """Give the passes that kernels need; the code gets the name by which it is kept."""
        given = super().define_pipelines()
        self.state.library.symbol = machine_code.symbol_of(self.state.func_id.func, self.state.args) or ""
        return given


class PartCache:
    """Where a dispatcher looks for the code of an `Apart`, in place of numba's own cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Make numba's record of a compiled function from what is kept; None if nothing is."""
        arguments, _ = sigutils.normalize_signature(signature)
        symbol = machine_code.symbol_of(self._function, arguments)
        code = machine_code.load_code(symbol) if symbol else None
        if code is None:
            return None
        identity = FunctionIdentity.from_function(self._function)
        descriptor = PythonFunctionDescriptor(
            *(True, identity.modname, identity.func_qualname, identity.unique_name, "", None, code.returned, None),
            *(tuple(identity.arg_names), ()),
            mangler=_named(str(symbol), identity.unique_id, default_mangler),
            argtypes=tuple(arguments),
            uid=identity.unique_id,
        )
        library = Apart(target_context.codegen(), str(symbol))
        library.symbol = str(symbol)
        library.finalize()
        environment = Environment.from_fndesc(descriptor)
        return CompileResult(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=target_context.get_executable(library, descriptor, environment),  # which Python can't call
            typing_error=None,
            type_annotation="",
            signature=typing_signature(code.returned, *arguments),
            objectmode=False,
            lifted=(),
            fndesc=descriptor,
            library=library,
            call_helper=None,
            environment=environment,
            metadata=None,
            reload_init=(),
            referenced_envs=(),
        )

    def save_overload(self, signature: Any, result: Any) -> None:
        """Have it compiled and kept."""
        if result.library.symbol:
            result.library.compile(result.signature.return_type)


def _named(symbol: str, identity: int, mangler: Any) -> Any:
    """A mangler by which the function of one identity has a given name."""

    def mangled(name: str, *rest: Any, uid: Any = None, **more: Any) -> str:
        if uid != identity:
            return str(mangler(name, *rest, uid=uid, **more))
        return f"{symbol}.environment" if name.startswith(".NumbaEnv") else symbol

    return mangled


class WholeCompiler(PartCompiler):
    """Compiles a function as a `Whole`."""

    library = Whole
