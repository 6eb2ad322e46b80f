#!/usr/bin/env python3
"""Writes the bill of materials of the program `trainyard` as CycloneDX 1.5, and the licences of what it links.

    scripts/sbom.py --target TRIPLE [--features LIST] --out FILE [--licences FILE]

What is linked comes from `cargo tree`, which knows the features of this one program; names, licences and the edges
between packages come from `cargo metadata`, checksums from Cargo.lock. The time is SOURCE_DATE_EPOCH.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "trainyard"
LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*")


def main():
    parser = argparse.ArgumentParser(description="bill of materials of the program, as CycloneDX 1.5")
    parser.add_argument("--target", required=True)
    parser.add_argument("--features", default="")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--licences", type=pathlib.Path)
    arguments = parser.parse_args()
    packages = linked(arguments.target, arguments.features)
    text = json.dumps(bill(packages), indent=2, sort_keys=True, ensure_ascii=False)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    if arguments.licences:
        arguments.licences.write_text(licences(packages), encoding="utf-8")


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target, features):
    """Packages that the program links, in order of name and version, each with the packages it needs itself."""
    chosen = ["--locked", "--features", features]
    told = cargo("metadata", "--format-version", "1", "--filter-platform", target, *chosen,
                 "--manifest-path", "crates/app/cli/Cargo.toml")
    told = json.loads(told)
    tree = cargo("tree", "--package", PACKAGE, "--edges", "normal", "--target", target, *chosen,
                 "--prefix", "none", "--no-dedupe", "--format", "{p}")
    # A line is `name v1.2.3`, with a place or a mark behind it for what is ours or runs in the compiler.
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    sums = checksums()
    by_id = {}
    for package in told["packages"]:
        if (package["name"], "v" + package["version"]) in names:
            package["sha256"] = sums.get((package["name"], package["version"]))
            by_id[package["id"]] = package
    if len(by_id) != len(names):
        raise SystemExit(f"error: {len(names)} packages are linked, and {len(by_id)} of them are known")
    for node in told["resolve"]["nodes"]:
        if node["id"] in by_id:
            normal = [d["pkg"] for d in node["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
            by_id[node["id"]]["needs"] = [by_id[other] for other in normal if other in by_id]
    return sorted(by_id.values(), key=lambda package: (package["name"], package["version"]))


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def bill(packages):
    whole = next(package for package in packages if package["name"] == PACKAGE)
    parts = [package for package in packages if package is not whole]
    content = {
        "components": [component(package, "library") for package in parts],
        "dependencies": [
            {"ref": ref(package), "dependsOn": sorted(ref(other) for other in package["needs"])}
            for package in packages
        ],
    }
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    # A bill with the same content is the same bill.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(whole, "application"),
        },
        **content,
    }


def component(package, kind):
    found = {"type": kind, "bom-ref": ref(package), "name": package["name"], "version": package["version"]}
    if package["license"]:
        # Older manifests part the choices by a slash, which no expression has.
        found["licenses"] = [{"expression": " OR ".join(part.strip() for part in package["license"].split("/"))}]
    elif package["license_file"]:
        found["licenses"] = [{"license": {"name": package["license_file"]}}]
    if package["sha256"]:
        found["hashes"] = [{"alg": "SHA-256", "content": package["sha256"]}]
        found["purl"] = f"pkg:cargo/{package['name']}@{package['version']}"
    return found


def ref(package):
    return f"{package['name']}@{package['version']}"


def licences(packages):
    """The texts that the licences of what is linked want to travel with it."""
    parts = ["What this program links, with the licences of each package.\n"]
    for package in packages:
        if not package["sha256"]:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted({file for pattern in LICENCE_FILES for file in folder.glob(pattern) if file.is_file()})
        parts.append(f"\n{'=' * 78}\n{package['name']} {package['version']}: {package['license'] or 'see below'}\n")
        if not files:
            parts.append("(the package holds no text of its licence)\n")
        for file in files:
            text = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").rstrip()
            parts.append(f"\n--- {file.name}\n\n{text}\n")
    return "".join(parts)


if __name__ == "__main__":
    main()
