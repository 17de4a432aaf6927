#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""'stoker simulate' from outside: its JSON, its plots, its messages.

Usage: cli_simulate.py STOKER"""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

POLICIES = ["perfect", "naive", "staging", "deepio-ordered", "deepio-opportunistic",
            "parallel-staging", "lbann-dynamic", "lbann-preloading", "locality-aware", "paper",
            "coordinated", "next-use", "lru"]
BUILTINS = {"thesis-s1", "thesis-s2", "thesis-s3", "thesis-s4", "sc21-mnist", "sc21-imagenet1k",
            "sc21-openimages", "sc21-imagenet22k", "sc21-cosmoflow", "sc21-cosmoflow512",
            "io-bound", "coverage", "fastpersist-0.7b", "fastpersist-175b"}
SMALL = {"samples": 2000, "sample_mb": 0.1, "sample_sigma_mb": 0.02, "ranks": 4, "batch": 8,
         "epochs": 3, "drop_last": True, "ram_mb": 20, "origin_mb_s": [[1, 100], [4, 250]]}

# a scenario file's text, what the message must contain
BAD_FILES = [
    ("", "file.json:1:"),
    ("[]", "a scenario is a JSON object"),
    ('{\n "ranks": 4,\n "epochs": 0\n}', "file.json:3: epochs is '0'; it must be 1 .. 10000"),
    ('{\n "ranks": 4,\n\n "rank": 0\n}', "file.json:4: a scenario has no key 'rank'"),
    ('{"base": "nothing"}', "no built-in scenario 'nothing'"),
    ('{\n"base": 4}', "file.json:2: base must be"),
    ('{"ranks": 1,\n "ranks": 2}', "duplicate"),
    ('{"name": "a \\"ranks\\": b",\n "ranks":\n -1}', "file.json:2: ranks is '-1'"),
    ('{"ranks": {"ranks": 3}}', "[x, y] pairs; it must be 1 .. 16384"),
    ('{"ssd_mb": [[0, 5],\n [1]]}', "file.json:1: ssd_mb is neither"),
    ('{\n"ssd_mb": [[1, 5]]}', "file.json:2: ssd_mb is '1:5'; it must be 0 .. 1e9, or NODE:VALUE"),
    ('{"ranks": 8,\n"node_ranks": 4,\n"ram_mb": [[0, 5], [2, 6]]}',
     "file.json:3: ram_mb has a value for node 2; there are 2 nodes"),
    ('{"name": "a\\u0000b"}', "file.json:1:"),
    ('{"origin_mb_s": [[1, 2], [3]]}', "origin_mb_s is neither"),
    ('{"origin_mb_s": [[2, 2], [1, 3]]}', "origin_mb_s is '2:2 1:3'"),
    ('{\n"staging_mb": 1}', "file.json:2: staging_mb is 1; it must hold two batches"),
    ('{"samples": 0,\n"ckpt_mb": 5,\n"ckpt_overlap_s": 2}',
     "file.json:3: ckpt_overlap_s is 2; it must be at most ckpt_step_s, 1"),
    ('{\n"ranks": "0X10"}', "file.json:2: ranks is '0X10'; it must be 1 .. 16384"),
    ('{\n"name": "a\\u0001b"}', "file.json:2: name has a control character"),
    ('{"samples": 1000,\n"ckpt_mb": 5}',
     "file.json:2: ckpt_mb is 5 and goes to SSDs, but ssd_mb is 0"),
    ('{"samples": 1000, "ckpt_mb": 5,\n"ssd_mb": [[0, 5], [3, 0]]}', "ssd_mb is 0 on node 3"),
    ('{"batch": 100000}', "file.json: staging_mb is 1024; it must hold two batches"),
]

# arguments after "simulate", what the message must contain, exit status
BAD = [
    ("", "either a SCENARIO.json or --builtin", 2),
    ("x.json --builtin thesis-s1", "either a SCENARIO.json or --builtin", 2),
    ("--builtin thesis-s9", "thesis-s9", 2),
    ("missing.json", "cannot read missing.json", 1),
    ("--builtin thesis-s1 --policy best", "no policy 'best'", 2),
    ("--builtin thesis-s1 --set ranks", "KEY=VALUE", 2),
    ("--builtin thesis-s1 --set ranks=0", "1 .. 16384", 2),
    ("--builtin thesis-s1 --set rank=0", "no key 'rank'", 2),
    ("--builtin thesis-s1 --sweep ranks", "KEY=VALUE", 2),
    ("--builtin thesis-s1 --sweep ranks=1,,2", "ranks is ''", 2),
    ("--builtin thesis-s1 --set mode=maybe", "honest published", 2),
    ("--builtin thesis-s1 --policy=", "--policy is empty", 2),
    ("--builtin thesis-s1 --why 1 --json", "--why says it in words", 2),
    ("--builtin thesis-s1 --why 1 --sweep ranks=1,2", "--why says it in words", 2),
    ("--builtin thesis-s1 --why 10000", "the scenario has 10000", 1),
    ("--builtin thesis-s1 --policy naive --svg /nowhere/x.svg", "cannot write /nowhere/x.svg", 1),
]


def run(stoker, words, **more):
    return subprocess.run([stoker, "simulate"] + words, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120, **more)


def run_json(stoker, words):
    done = run(stoker, words + ["--json"])
    assert done.returncode == 0 and not done.stderr, done
    return json.loads(done.stdout)


def check_policies(entries, names):
    assert [entry["name"] for entry in entries] == names, entries
    for entry in entries:
        if "refused" in entry:
            assert "does not fit" in entry["refused"]
            continue
        assert set(entry) >= {"seconds", "stall_seconds", "origin_bytes", "bound_bytes", "sources"}
        assert set(entry["sources"]) == {"origin", "ram", "ssd", "peer"}
        reads = sum(source["samples"] for source in entry["sources"].values())
        assert reads == 3 * (2000 // 32) * 32, reads


def check_file(stoker, folder):
    path = os.path.join(folder, "small.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(SMALL, out)
    found = run_json(stoker, [path])
    assert found["scenario"] == "unnamed" and found["bound_seconds"] > 0
    check_policies(found["policies"], POLICIES)
    again = run_json(stoker, [path])
    assert found == again
    chosen = run_json(stoker, [path, "--policy", "lru,paper", "--policy", "naive"])
    check_policies(chosen["policies"], ["naive", "paper", "lru"])
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"base": "thesis-s1", "name": "mine"}, out)
    base = run_json(stoker, [path, "--policy", "naive"])
    assert base["scenario"] == "mine"
    builtin = run_json(stoker, ["--builtin", "thesis-s1", "--policy", "naive"])
    assert base["policies"] == builtin["policies"]


def check_published(stoker):
    found = run_json(stoker, ["--builtin", "thesis-s1", "--set", "mode=published"])
    seconds = {entry["name"]: entry.get("seconds") for entry in found["policies"]}
    assert abs(seconds["paper"] / 7.78 - 1) < 0.01 and abs(seconds["naive"] / 27.78 - 1) < 0.01
    assert seconds["coordinated"] is None
    assert abs(found["bound_seconds"] / 7.30 - 1) < 0.01
    for entry in found["policies"]:
        if "seconds" in entry and entry["name"] != "perfect":
            assert 0 < entry["bound_bytes"] <= entry["origin_bytes"], entry


def check_sweep(stoker, folder):
    svg = os.path.join(folder, "sweep.svg")
    found = run_json(stoker, ["--builtin", "coverage", "--set", "samples=1600", "--policy",
                              "paper,coordinated", "--sweep", "capacity=0.5,1,2", "--svg", svg])
    assert found["sweep"] == "capacity"
    assert [entry["value"] for entry in found["runs"]] == ["0.5", "1", "2"]
    shares = [entry["policies"][0]["steady_origin_share"] for entry in found["runs"]]
    assert shares == sorted(shares, reverse=True)
    assert found["runs"][1]["policies"][1]["steady_origin_share"] == 0
    document = xml.dom.minidom.parse(svg)
    assert len(document.getElementsByTagName("polyline")) == 2


def check_mixed_sweep(stoker, folder):
    """A sweep from no loader to one: each run says what it has."""
    svg = os.path.join(folder, "mixed.svg")
    words = ["--builtin", "fastpersist-0.7b", "--policy", "lru", "--sweep", "samples=0,1000",
             "--set", "ssd_mb=1000"]
    runs = run_json(stoker, words + ["--svg", svg])["runs"]
    assert "policies" not in runs[0] and "checkpoint" in runs[0], runs
    assert runs[1]["policies"][0]["seconds"] > 0 and "checkpoint" in runs[1], runs
    document = xml.dom.minidom.parse(svg)
    assert len(document.getElementsByTagName("circle")) == 1
    assert "lru" in run(stoker, words).stdout


def check_vast_room(stoker):
    """Room of 2^64 bytes on all nodes together is not room for nothing."""
    found = run_json(stoker, ["--builtin", "coverage", "--policy", "coordinated",
                              "--set", "samples=16384", "--set", "ranks=16384",
                              "--set", "epochs=3", "--set", "capacity=0",
                              "--set", "ram_mb=1e9", "--set", "ssd_mb=125899906.842624"])
    entry = found["policies"][0]
    assert entry["origin_bytes"] == entry["bound_bytes"], entry


def check_bars(stoker, folder):
    svg = os.path.join(folder, "bars <&>.svg")
    done = run(stoker, ["--builtin", "thesis-s1", "--svg", svg, "--set", "name=a <&> b"])
    assert done.returncode == 0 and "coordinated" in done.stdout, done
    document = xml.dom.minidom.parse(svg)
    texts = [node.firstChild.data for node in document.getElementsByTagName("text")]
    assert "bound" in texts and "a <&> b" in texts, texts
    assert len(document.getElementsByTagName("rect")) == 1 + len(POLICIES)


def check_checkpoint(stoker):
    found = run_json(stoker, ["--builtin", "fastpersist-0.7b"])["checkpoint"]
    product = found["device_factor"] * found["devices_factor"] * found["nodes_factor"]
    assert abs(found["creation_factor"] - 116) < 1.5
    assert abs(product / found["creation_factor"] - 1) < 1e-6
    assert found["required_mb_s"] > 0


def check_list(stoker):
    done = run(stoker, ["--list"])
    assert done.returncode == 0 and "io-bound" in done.stdout and "origin_mb_s" in done.stdout
    listed = run_json(stoker, ["--list"])
    assert set(listed["scenarios"]) >= BUILTINS, listed
    assert listed["policies"] == POLICIES


def check_why(stoker):
    done = run(stoker, ["--builtin", "thesis-s1", "--why", "7", "--policy", "coordinated,lru"])
    assert done.returncode == 0 and "holds it" in done.stdout and "read last" in done.stdout, done


    lines = run(stoker, ["--builtin", "thesis-s1", "--why", "7", "--policy", "paper", "--set",
                         "ranks=1", "--set", "ram_mb=1e6"]).stdout.split("\n")
    assert lines[1].endswith("from the origin, into its own RAM"), lines
    assert lines[2].endswith("from its own RAM"), lines


def check_dropped(stoker):
    """What an epoch drops is held for a later one where there is room."""
    words = ["--builtin", "coverage", "--policy", "coordinated,next-use"]
    for setting in ("samples=2534", "ranks=1", "batch=1000", "sample_mb=1", "epochs=12",
                    "drop_last=yes", "capacity=0", "ram_mb=2253.4", "staging_mb=2000"):
        words += ["--set", setting]
    entries = run_json(stoker, words)["policies"]
    assert entries[0]["origin_bytes"] == entries[1]["origin_bytes"], entries


def check_fills(stoker):
    """What fills tiers is told apart from what is read."""
    words = ["--builtin", "thesis-s1", "--policy", "paper,coordinated"]
    for entry in run_json(stoker, words)["policies"]:
        read_bytes = entry["sources"]["origin"]["bytes"]
        assert entry["fill_bytes"] == entry["origin_bytes"] - read_bytes, entry
        assert (entry["fill_bytes"] > 0) == (entry["name"] == "paper"), entry


def check_vast_checkpoint(stoker):
    """Pieces of a save grow with it: as many as end soon."""
    found = run_json(stoker, ["--builtin", "io-bound", "--policy", "coordinated", "--set",
                              "samples=2000", "--set", "ssd_mb=10", "--set", "ckpt_mb=1e9"])
    assert found["policies"][0]["seconds"] > 1e5, found


def check_svg_first(stoker, folder):
    """A plot that cannot be written is found before the run; one that was there is replaced,
    but not by a run that fails."""
    svg = os.path.join(folder, "old.svg")
    with open(svg, "w", encoding="utf-8") as out:
        out.write("x" * 100000)
    assert run(stoker, ["--builtin", "thesis-s1", "--sweep", "ranks=4,0", "--svg",
                        svg]).returncode != 0
    assert os.path.getsize(svg) == 100000
    assert run(stoker, ["--builtin", "thesis-s1", "--policy", "lru", "--svg", svg]).returncode == 0
    xml.dom.minidom.parse(svg)
    done = run(stoker, ["--builtin", "sc21-imagenet22k", "--svg", "/nowhere/x.svg"])
    assert done.returncode == 1 and "/nowhere/x.svg" in done.stderr, done


def check_settings(stoker):
    words = ["--builtin", "thesis-s1", "--policy", "lru"]
    done = run(stoker, words + ["--set", b"name=a\xff"])
    assert done.returncode == 2 and "name is not UTF-8" in done.stderr, done
    assert run(stoker, words + 32 * ["--set", "ranks=4"]).returncode == 0
    done = run(stoker, words + 33 * ["--set", "ranks=4"])
    assert done.returncode == 2 and "more than 32 times" in done.stderr, done


def check_bad(stoker, folder):
    path = os.path.join(folder, "file.json")
    for text, expected in BAD_FILES:
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        done = run(stoker, [path])
        assert done.returncode == 1 and expected in done.stderr, (text, done)
    for arguments, expected, status in BAD:
        done = run(stoker, arguments.split(), cwd=folder)
        assert done.returncode == status and expected in done.stderr, (arguments, done)


def main():
    stoker = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        check_file(stoker, folder)
        check_sweep(stoker, folder)
        check_mixed_sweep(stoker, folder)
        check_bars(stoker, folder)
        check_bad(stoker, folder)
        check_svg_first(stoker, folder)
    check_published(stoker)
    check_vast_room(stoker)
    check_vast_checkpoint(stoker)
    check_dropped(stoker)
    check_fills(stoker)
    check_settings(stoker)
    check_checkpoint(stoker)
    check_list(stoker)
    check_why(stoker)
    return 0


if __name__ == "__main__":
    sys.exit(main())
