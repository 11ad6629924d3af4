"""Reference problems of stiff lines, by implicit and explicit steps: tables and pictures.

    python drivers/stiff_systems.py --folder results circle         a cantilever bent into a circle
    python drivers/stiff_systems.py --folder results spaghetti      a free rod, pushed and turned at its end
    python drivers/stiff_systems.py --folder results folded-chain   a folded chain falls: faster than freely
    python drivers/stiff_systems.py --folder results beam           a beam after a blow, with more and more links
    python drivers/stiff_systems.py --folder results frequency      its lowest frequency, with up to 10^5 links
    python drivers/stiff_systems.py --folder results taut-line      a line under tension, without springs

Each prints its table, and writes it as stiff_NAME.json and .tsv, with a picture. Orders and stability of the methods:
`implicit_orders.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import Body, Joint, System
from mpimbs.model.rod import Rod
from mpimbs.plots.curves import new_figure, save
from mpimbs.plots.tables import host, markdown, write_tables
from mpimbs.run.result import Result
from mpimbs.run.run import simulate
from mpimbs.stepping.schemes import LINEAR

Rows = list[dict[str, Any]]
Found = tuple[Rows, Figure]

IMPLICIT = (*LINEAR, "petsc:bdf", "petsc:arkimex3")
EXACT: dict[str, Any] = {"integrator": "dopri5", "rtol": 1e-10, "atol": 1e-12}


def ends(result: Result, length: float) -> Floats:
    """Where the outer ends of links of a length (m) along z are [samples, links, 3], m."""
    places, (w, x, y, z) = result.poses[:, :, :3], np.moveaxis(result.poses[:, :, 3:], -1, 0)
    found: Floats = places + length * np.stack((2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x**2 + y**2)), -1)
    return found


def tip(angles: Floats, length: float) -> Floats:
    """Where a line in a plane ends [..., 2], m, of joint angles [..., links] and a length of its links (m)."""
    turned = np.cumsum(angles, axis=-1)
    found: Floats = length * np.stack((np.cos(turned).sum(axis=-1), np.sin(turned).sum(axis=-1)), -1)
    return found


# --- a cantilever bent into a circle ----------------------------------------------------------------------------------


def circle(
    links: int = 40, dt: float = 0.002, ramp: int = 300, held: int = 1000, integrators: Sequence[str] = IMPLICIT
) -> Found:
    """Bend a cantilever by a couple at its tip that rises for `ramp` steps, to where the tip comes to the root.

    As MuJoCo's test of its cables does, after Weeger, Yeung & Dunn (2016), section 7.1: 1 m of 1 cm, E 1e9 Pa, G 1e6
    Pa, 1 kg/m^3, dampers of 2 N m s/rad: of links so light that nothing but implicit damping goes on.
    """
    system = System("circle", gravity=(0, 0, 0))
    rod = system.add_rod(
        name="cable", count=links, length=1, diameter=0.01, density=1, youngs_modulus=1e9, shear_modulus=1e6,
        damping=2.0, joint="spherical", clamped=True,
    )  # fmt: skip
    assert rod.section is not None
    couple, rise = 2 * math.pi * 1e9 * rod.section.bending[0], ramp * dt
    system.add_wrench(f"cable{links}", moment=lambda t: (0, 0, couple * min(t / rise, 1.0)), frame="world")
    figure, axes = new_figure("a cantilever bent into a circle", "x (m)", "y (m)", 6.0, 6.0)
    rows: Rows = []
    for integrator in integrators:
        begun = perf_counter()
        result = simulate(
            system, (ramp + held) * dt, integrator=integrator, dt=dt, every=ramp // 5 * dt, sample="q,poses"
        )
        found = ends(result, 1 / links)
        away = float(np.linalg.norm(found[-1, -1]))
        rows.append({"integrator": integrator, "steps": result.steps, "m to the root": away,
                     "seconds": perf_counter() - begun})  # fmt: skip
        if integrator == integrators[0]:
            for t, line in zip(result.t, found, strict=True):
                if t <= rise * 1.001 or t == result.t[-1]:
                    axes.plot(*np.vstack((np.zeros(3), line))[:, :2].T, ".-", ms=3, label=f"{t:.3g} s")
    axes.set_aspect("equal")
    axes.legend()
    return rows, figure


# --- flying spaghetti -------------------------------------------------------------------------------------------------


def spaghetti_system(links: int) -> System:
    """Give the free rod of Simo & Vu-Quoc (1988): 10 m, 1 kg/m, 10 kg m, EI = GJ = 500 N m^2, pushed for 5 s."""
    rod = Rod(
        name="rod", count=links, length=10, position=(6, 0, 0), direction=(-6, 8, 0), EI=500, GJ=500,
        mass_per_length=1, joint="spherical", floating=True,
    )  # fmt: skip
    link = 10 / links
    inertia = (link**3 / 12 + 10 * link, link**3 / 12 + 10 * link, 10 * link, 0.0, 0.0, 0.0)
    first, other = (body.model_copy(update={"inertia": inertia}) for body in rod.bodies())
    system = System("spaghetti", gravity=(0, 0, 0))
    system.repeat(1, first)
    system.repeat(links - 1, other)

    def rising(t: float) -> float:
        return max(0.0, min(t / 2.5, 2.0 - t / 2.5))

    system.add_wrench(
        "rod1", frame="world", force=lambda t: (20 * rising(t), 0, 0),
        moment=lambda t: (0, -100 * rising(t), -200 * rising(t)),
    )  # fmt: skip
    return system


def pushed(t: Floats) -> Floats:
    """How far (m) the centre of mass of the spaghetti has come by some times (s)."""
    rise, fall, free = np.minimum(t, 2.5), np.clip(t - 2.5, 0, 2.5), np.maximum(t - 5, 0)
    found: Floats = 0.8 * rise**3 / 6 + 2.5 * fall + fall**2 - 0.8 * fall**3 / 6 + 5 * free
    return found


def spaghetti(links: int = 32, t_end: float = 7.0) -> Found:
    """Follow a free rod in large motion: its centre of mass is known, and its momentum after 5 s kept."""
    system, rows = spaghetti_system(links), Rows()
    figure, axes = new_figure("a free rod, pushed at its end", "x (m)", "y (m)", 9.0, 5.0)
    ways: dict[str, dict[str, Any]] = {
        "dopri5, 1e-10": EXACT,
        "rosenbrock, 1e-6": {"integrator": "rosenbrock", "rtol": 1e-6, "atol": 1e-6},
        "rosenbrock, 10 ms": {"integrator": "rosenbrock", "dt": 0.01},
        "rosenbrock, 5 ms": {"integrator": "rosenbrock", "dt": 0.005},
    }
    reference = None
    for name, way in ways.items():
        result = simulate(system, t_end, every=0.1, sample="q,u,poses", **way)
        far = ends(result, 10 / links)
        centre = 0.5 * (far + result.poses[:, :, :3]).mean(axis=1)
        right = np.zeros_like(centre)
        right[:, 0] = pushed(result.t)
        with closing(Dynamics(system)) as dynamics:
            momenta = np.array([
                dynamics.energy_and_momentum(q, u)[2:]
                for t, q, u in zip(result.t, result.q, result.u, strict=True) if t >= 5.0
            ])  # fmt: skip
        last = far[-1, -1]
        reference = last if reference is None else reference
        rows.append({
            "way": name, "steps": result.steps, "evaluations": result.evaluations,
            "centre of mass, m": float(np.abs(centre - centre[0] - right).max()),
            "momentum, N s": float(np.abs(momenta[:, :3] - (50, 0, 0)).max()),
            "angular momentum, N m s": float(np.abs(momenta[:, 3:] - momenta[0, 3:]).max()),
            "outer end, m": float(np.linalg.norm(last - reference)),
        })  # fmt: skip
        if way is EXACT:
            for t, line, first in list(zip(result.t, far, result.poses[:, 0, :3], strict=True))[::10]:
                axes.plot(*np.vstack((first, line))[:, :2].T, label=f"{t:.3g} s")
    axes.set_aspect("equal")
    axes.legend(fontsize=8)
    return rows, figure


# --- a folded chain falls ---------------------------------------------------------------------------------------------

# Fall of the free end over the length; time times sqrt(g / L); force at the support over the weight: of a continuum.
FALLING = ((0.10, 0.443340, 0.602778), (0.25, 0.690809, 0.770833), (0.50, 0.948025, 1.125), (0.75, 1.113656, 1.8125))


def folded_chain(links: Sequence[int] = (64, 256, 1024), gap: float = 0.02) -> Found:
    """Let one end of a chain go that hangs from both, `gap` lengths apart; compare with energy kept on a line.

    1 m and 1 kg, gravity 1 m/s^2.
    """
    figure, axes = new_figure("a folded chain falls", "fall of the free end (m)", "force at the support (N)")
    rows: Rows = []
    for n in links:
        system = System("folded", gravity=(0, -1, 0))
        system.add_rod(name="line", count=n, length=1, EI=0, mass_per_length=1, joint="revolute")
        lean, q = math.asin(gap), np.zeros(n)
        q[0], q[n // 2] = lean - math.pi / 2, math.pi - 2 * lean
        ways: dict[str, dict[str, Any]] = {
            "dopri5": {"integrator": "dopri5", "rtol": 1e-7, "atol": 1e-7},
            "rosenbrock": {"integrator": "rosenbrock", "rtol": 1e-5, "atol": 1e-5},
        }
        for way, settings in ways.items():
            result = simulate(
                system, 1.2, every=0.004, state=(q, np.zeros(n)), sample="q,load:line1", **settings
            )  # fmt: skip
            fallen = -tip(result.q, 1 / n)[:, 1]
            load = result.body("line1").load
            assert load is not None
            force = np.linalg.norm(load[:, 3:], axis=1)
            axes.plot(fallen, force, label=f"{n} links, {way}", lw=0.8)
            found = np.interp([x for x, _, _ in FALLING], fallen, result.t)
            rows.append(
                {"links": n, "way": way, "steps": result.steps}
                | {f"t at {x:g} L": float(t) for (x, _, _), t in zip(FALLING, found, strict=True)}
                | {"energy error, J": result.energy_error}
            )
    exact = {f"t at {x:g} L": t for x, t, _ in FALLING}
    rows.append({"links": "continuum", "way": "", "steps": ""} | exact | {"energy error, J": 0.0})
    axes.plot([x for x, _, _ in FALLING], [force for _, _, force in FALLING], "ko", label="continuum")
    axes.set_ylim(0.4, 4)
    axes.legend()
    return rows, figure


# --- a beam after a blow ----------------------------------------------------------------------------------------------

BENDING, PER_LENGTH, LENGTH = 2300.0, 2.7, 0.5  # N m^2, kg/m, m: 50 mm times 20 mm of aluminium
FORCE, BLOW = 100.0, 1e-3  # N down at the tip, for so long (s)
HEIGHT = 0.02  # m


def beam_system(links: int, force: float = 0.0) -> System:
    """Give the FlexibleBeam of the Modelica library ScalableTestSuite, with N = `links` hinges [Casella 2015]."""
    link = LENGTH / links

    def box(share: float) -> dict[str, Any]:
        length, mass = share * link, share * link * PER_LENGTH
        sides = (HEIGHT**2 + 0.05**2, length**2 + 0.05**2, length**2 + HEIGHT**2)
        inertia = (*(mass / 12 * side for side in sides), 0.0, 0.0, 0.0)
        return {"mass": mass, "center_of_mass": (length / 2, 0, 0), "inertia": inertia}

    given = {"type": "revolute", "axis": (0, 0, 1), "stiffness": BENDING / link, "damping": 1e-5}
    first, inner = (Joint(position=(length, 0, 0), **given) for length in (link / 2, link))
    system = System("beam", gravity=(0, 0, 0))
    system.repeat(1, Body(name="box", joint=first, **box(1.0)))
    system.repeat(links - 2, Body(name="box", joint=inner, **box(1.0)))
    system.add(Body(name="tip", joint=inner, **box(0.5)), parent=system.contents.name_of(links - 2))
    if force:
        system.add_wrench("tip", frame="world", point=(link / 2, 0, 0), force=(0, -force, 0))
    return system


def swing(t: Floats, modes: int = 12) -> Floats:
    """Deflection of the tip (m) so long (s) after the blow began: modes of a clamped beam whose sections turn, too."""
    s, found = np.linspace(0, 1, 4001), np.zeros_like(t)
    for k in range(modes):
        x = brentq(lambda x: math.cos(x) + 1 / math.cosh(x), k * math.pi + (k == 0), (k + 1) * math.pi, xtol=1e-13)
        # d/ds of cosh x s - cos x s - c (sinh x s - sin x s), without differences of large numbers
        rest = (math.sin(x) - math.cos(x) - math.exp(-x)) / (math.sinh(x) + math.sin(x))
        growing, falling = rest * np.exp(x * s) / 2, (2 - rest) * np.exp(-x * s) / 2
        slope = x * (growing - falling + np.sin(x * s) + (1 - rest) * np.cos(x * s))
        turning = 1 + HEIGHT**2 / 12 / LENGTH**2 * np.trapezoid(slope**2, s)
        omega = (x / LENGTH) ** 2 * math.sqrt(BENDING / PER_LENGTH / turning)
        since = [1 - np.cos(omega * np.maximum(t - at, 0)) for at in (0.0, BLOW)]
        found -= 4 * FORCE / (PER_LENGTH * LENGTH * turning * omega**2) * (since[0] - since[1])
    return found


def beam(
    links: Sequence[int] = (64, 1024, 16384, 100000), steps: Sequence[float] = (1e-4, 5e-5), t_end: float = 0.038
) -> Found:
    """Strike a beam: fixed steps of rosenbrock, as long with many links as with few, against the modes of a continuum.

    The time a step takes is that after the blow, when nothing but springs and dampers acts.
    """
    figure, axes = new_figure("tip of a beam after a blow", "t (ms)", "mm")
    rows, every = Rows(), 2e-4
    for n in links:
        for dt in steps:
            given: dict[str, Any] = {"integrator": "rosenbrock", "dt": dt, "every": every}
            blow = simulate(beam_system(n, FORCE), BLOW, **given)
            result = simulate(beam_system(n), t_end, state=(blow.q[-1], blow.u[-1]), **given)
            share = np.append(np.ones(n - 1), 0.5)
            down, t = np.sin(np.cumsum(result.q, axis=1)) @ share * (LENGTH / n), result.t + BLOW
            spent = sum(result.seconds[part] for part in ("sweep", "coupling", "integration")) / result.steps
            omega = 4 * math.sqrt(BENDING / PER_LENGTH) * (n / LENGTH) ** 2
            rows.append({
                "links": n, "step, us": dt * 1e6, "omega h": omega * dt,
                "error, m": float(np.abs(down - swing(t)).max()), "us a step": spent * 1e6,
                "ns a link and step": spent / n * 1e9,
            })  # fmt: skip
        axes.plot(t * 1e3, down * 1e3, label=f"{n} links, steps of {steps[-1] * 1e6:g} us")
    axes.plot(t * 1e3, swing(t) * 1e3, "k:", label="continuum")
    axes.legend()
    return rows, figure


def clamped_frequency() -> float:
    """Lowest frequency (Hz) of the beam as a continuum, whose sections turn, too [Rayleigh 1894]."""
    turning = PER_LENGTH * HEIGHT**2 / 12

    def at_the_tip(omega: float) -> float:
        """Determinant of moments w'' and shears EI w''' + turning omega^2 w' of the two shapes that are clamped."""
        share, root = turning * omega**2 / (2 * BENDING), omega * math.sqrt(PER_LENGTH / BENDING)
        a, b = (math.sqrt(math.hypot(share, root) + sign * share) for sign in (-1, 1))
        # cosh a x - cos b x, and sinh a x - a / b sin b x
        sh, ch, s, c = (f(k * LENGTH) for f, k in ((math.sinh, a), (math.cosh, a), (math.sin, b), (math.cos, b)))
        moments = a**2 * ch + b**2 * c, a**2 * sh + a * b * s
        slopes = a * sh + b * s, a * ch - a * c
        bends = a**3 * sh - b**3 * s, a**3 * ch + a * b**2 * c
        shears = [bend + 2 * share * slope for bend, slope in zip(bends, slopes, strict=True)]
        return moments[0] * shears[1] - moments[1] * shears[0]

    first = (1.8751 / LENGTH) ** 2 * math.sqrt(BENDING / PER_LENGTH)
    return float(brentq(at_the_tip, 0.9 * first, 1.01 * first, xtol=1e-12 * first)) / (2 * math.pi)


def frequency(links: Sequence[int] = (64, 256, 1024, 4096, 16384, 100000)) -> Found:
    """Find the lowest frequency of the beam by shift-inverted iteration: the error falls with the square of the links.

    Of a beam whose sections don't turn it is 65.33004 Hz.
    """
    exact, rows = clamped_frequency(), Rows()
    for n in links:
        with closing(Dynamics(beam_system(n))) as dynamics:
            begun = perf_counter()
            found = float(modes(dynamics, dynamics.subchain.q, 1).frequencies[0])
            spent = perf_counter() - begun
        error, order = abs(found - exact), math.nan
        if rows:
            order = math.log(rows[-1]["error, Hz"] / error) / math.log(n / rows[-1]["links"])
        rows.append({"links": n, "Hz": found, "error, Hz": error, "order": order, "s": spent})
    figure, axes = new_figure("lowest frequency of a beam", "links", "error (Hz)")
    axes.loglog(links, [row["error, Hz"] for row in rows], "o-")
    return rows, figure


# --- a taut line ------------------------------------------------------------------------------------------------------


def taut_line(
    links: int = 16,
    tension: float = 500.0,
    steps: Sequence[float] = (5e-3, 2.5e-3, 1e-3, 5e-4, 2.5e-4),
    t_end: float = 0.4,
) -> Found:
    """Let a line of 1 m and 50 g sag that is pulled by a force at its end: which steps grow beyond all bounds."""
    system = System("taut", gravity=(0, -9.81, 0))
    system.add_rod(name="line", count=links, length=1, EI=0, mass_per_length=0.05, joint="revolute")
    system.add_wrench(f"line{links}", force=(tension, 0, 0), point=(0, 0, 1 / links), frame="world")
    figure, axes = new_figure(f"a line under {tension:g} N", "t (s)", "height of its middle (m)")
    reference = simulate(system, t_end, every=5e-3, **EXACT)
    middle = tip(reference.q[:, : links // 2], 1 / links)[:, 1]
    axes.plot(reference.t, middle, "k:", label="dopri5, 1e-10")
    sag, rows = float(np.abs(middle).max()), Rows()
    for integrator in ("rk4", *IMPLICIT):
        for dt in steps:
            row: dict[str, Any] = {"integrator": integrator, "step, ms": dt * 1e3}
            try:
                result = simulate(system, t_end, integrator=integrator, dt=dt, every=5e-3)
                found = tip(result.q[:, : links // 2], 1 / links)[:, 1]
                far = float(np.abs(found).max())
            except SimulationError:
                far = math.inf
            row["stable"] = far < 2 * sag
            row["error over sag"] = float(np.abs(found - middle).max()) / sag if row["stable"] else None
            rows.append(row)
            if row["stable"] and dt == steps[0]:
                axes.plot(result.t, found, label=f"{integrator}, {dt * 1e3:g} ms")
    axes.legend()
    return rows, figure


# --- the command ------------------------------------------------------------------------------------------------------

CASES: dict[str, Callable[..., Found]] = {
    "circle": circle, "spaghetti": spaghetti, "folded-chain": folded_chain, "beam": beam, "frequency": frequency,
    "taut-line": taut_line,
}  # fmt: skip


def solve(stem: str, cases: dict[str, Callable[..., Found]], case: str, folder: Path, **options: Any) -> Rows:
    """Solve a case with options of its own; give the table, which is printed and written with a picture."""
    rows, figure = cases[case](**options)
    name = f"{stem}_{case.replace('-', '_')}"
    write_tables(folder, name, {"case": case, "rows": rows, **host()}, rows, list(rows[0]))
    save(figure, folder / f"{name}.png")
    click.echo(markdown(rows))
    return rows


def command_of(text: str, stem: str, cases: dict[str, Callable[..., Found]]) -> click.Command:
    """Make the command that solves cases by name."""

    @click.command(help=text)
    @click.argument("names", metavar="CASE...", nargs=-1, required=True, type=click.Choice(list(cases)))
    @click.option("--folder", type=Path, default=Path("results"), show_default=True)
    def command(names: tuple[str, ...], folder: Path) -> None:
        for name in names:
            solve(stem, cases, name, folder)

    return command


if __name__ == "__main__":
    command_of(__doc__, "stiff", CASES)()
