#!/usr/bin/env python3
"""Run scenarios of hardbyte/postgresql-job-queue-benchmarking for this queue and for River.

    git clone https://github.com/hardbyte/postgresql-job-queue-benchmarking H
    git -C H checkout 93677cab92dad89ee9eccb0d6e113893de43cbe6
    cd bench && cmd/portable/run.py H --scenario chaos_postgres_restart

The phases, the offered load, what is measured and how it is summed up are that program's own,
unchanged; so is its adapter for River. Replaced are its containers: PostgreSQL is the host's,
with a fresh cluster for each system and that program's postgres.conf, and the adapters run
as processes of the host. Its command line is passed by, since it needs a newer pydantic than
Debian 12 has. --scale shortens every phase alike.

It needs Go, PostgreSQL with its contrib modules, and the Debian packages python3-psycopg,
python3-matplotlib, python3-pandas and python3-numpy. Started by root, PostgreSQL runs as postgres.
"""

import argparse
import dataclasses
import glob
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
METRICS = ("enqueue_rate", "completion_rate", "claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "queue_depth")


class Cluster:
    """A PostgreSQL server of the host in place of the container."""

    def __init__(self, folder: pathlib.Path, conf: pathlib.Path, user: str, password: str):
        self.data, self.conf, self.user, self.password = folder / "data", conf, user, password
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[-2]))
        self.bin = pathlib.Path(found[-1]) if found else pathlib.Path(shutil.which("postgres") or "").parent
        if not (self.bin / "initdb").exists():
            raise SystemExit("run.py: PostgreSQL is not installed: there is no initdb in /usr/lib/postgresql/*/bin, nor beside postgres on PATH")
        self.owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def run(self, *argv: str) -> None:
        # The server goes on: it must not hold a pipe of ours.
        subprocess.run([str(self.bin / argv[0]), *argv[1:]], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", **self.owner)

    def start(self) -> None:
        if not self.data.exists():
            with tempfile.NamedTemporaryFile("w", dir=self.data.parent) as secret:
                secret.write(self.password)
                secret.flush()
                os.chmod(secret.name, 0o644)
                self.run("initdb", "-D", str(self.data), "-U", self.user, "-A", "scram-sha-256", "--pwfile", secret.name, "-E", "UTF8", "--locale", "C.UTF-8")
            conf = self.data / "postgresql.conf"
            conf.write_text(conf.read_text() + self.conf.read_text() + f"\nport = {self.port}\nlisten_addresses = 'localhost'\nunix_socket_directories = ''\n")
        self.run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", str(self.data / "log"))

    def stop(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.run("pg_ctl", "stop", "-w", "-m", "fast", "-D", str(self.data))

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness", type=pathlib.Path, help="a clone of the benchmark")
    parser.add_argument("--scenario", help="one of its scenarios, such as long_horizon")
    parser.add_argument("--phase", action="append", default=[], help="label=type:duration; may be repeated")
    parser.add_argument("--scale", type=float, default=1, help="every phase takes so much of its time, at least 20 s")
    parser.add_argument("--systems", default="agentsched,river")
    parser.add_argument("--producer-rate", type=int, default=800, help="jobs a second")
    parser.add_argument("--worker-count", type=int, default=32)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(".tmp/portable"), help="folder for results")
    args = parser.parse_args()
    harness = args.harness.resolve()
    if not (harness / "bench_harness" / "orchestrator.py").exists():
        raise SystemExit(f"run.py: {harness} has no bench_harness/orchestrator.py: it is no clone of the benchmark")
    sys.path.insert(0, str(harness))
    from bench_harness import adapters, orchestrator, phases

    try:
        plan = phases.resolve_scenario(args.scenario, args.phase)
    except ValueError as err:
        raise SystemExit(f"run.py: {err}")
    plan = [dataclasses.replace(p, duration_s=max(min(20, p.duration_s), round(p.duration_s * args.scale))) for p in plan]

    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="cluster-", dir=out))
    if os.geteuid() == 0:
        shutil.chown(work, "postgres", "postgres")
    cluster = Cluster(work, harness / "postgres.conf", adapters.PG_USER, adapters.PG_PASS)
    adapters.PG_PORT = cluster.port
    orchestrator.RESULTS_ROOT = out
    orchestrator.start_postgres = lambda image: cluster.start()
    orchestrator.stop_postgres = lambda image: cluster.remove()
    orchestrator._compose_stop_postgres = lambda image: cluster.stop()
    orchestrator._compose_start_postgres = lambda image: cluster.start()

    def entry(name: str, bench: pathlib.Path, source: pathlib.Path, package: str) -> None:
        program = work / name

        def build(skip: bool) -> None:
            subprocess.run(["go", "build", "-o", str(program), package], cwd=source, check=True)

        def launch(manifest, overrides):
            return adapters.LaunchSpec(argv=[str(program)], env=adapters._base_env(manifest, overrides))

        adapters.ADAPTERS[name] = adapters.AdapterEntry(bench_dir=bench, builder=build, launcher=launch)

    entry("agentsched", HERE, HERE, ".")
    entry("river", harness / "river-bench", harness / "river-bench", ".")
    systems = args.systems.split(",")
    try:
        folder = orchestrator.drive(
            systems=systems, scenario=args.scenario, phases=plan, pg_image="PostgreSQL of the host", fast=False, skip_build=False,
            sample_every_s=5, producer_rate=args.producer_rate, producer_mode="fixed", target_depth=1000, worker_count=args.worker_count,
            high_load_multiplier=1.5, awa_completion_batch_size=None, replicas=1, cli_args=sys.argv)
    finally:
        cluster.remove()
        shutil.rmtree(work, ignore_errors=True)
    show(json.loads((folder / "summary.json").read_text()), systems, plan)


def show(summary: dict, systems: list, plan: list) -> None:
    """Print what the benchmark has summed up, a line a phase and system."""
    print("| phase | system | " + " | ".join(METRICS) + " | dead tuples |")
    print("|---|---|" + "---|" * (len(METRICS) + 1))
    for phase in plan:
        for system in systems:
            found = summary["systems"].get(system, {}).get("phases", {}).get(phase.label)
            if not found:
                continue
            cells = [median(found, m) for m in METRICS]
            print(f"| {phase.label}, {phase.duration_s} s | {system} | " + " | ".join(cells) + f" | {dead(found)} |")


def median(found: dict, metric: str) -> str:
    value = found.get("metrics", {}).get(metric, {}).get("median")
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def dead(found: dict) -> str:
    value = found.get("median_dead_tup")
    return "-" if value is None else f"{value:.0f}"


if __name__ == "__main__":
    main()
