#!/bin/sh
# Installs what building membar needs from the system, if it is missing, and says what and why.
set -eu

missing=
# package, what shows that it is there, why
check() {
    if ! eval "$2" >/dev/null 2>&1; then
        echo "membar needs $1: $3" >&2
        missing="$missing $1"
    fi
}
check_all() {
    missing=
    check pkg-config "command -v pkg-config" "it tells the build where libhwloc is"
    # Without pkg-config nobody can ask for the libraries, so they are taken for missing together.
    check libhwloc-dev "pkg-config --atleast-version=2.8 hwloc" \
        "hwloc (2.8 or later) reads the machine's topology: sockets, nodes, caches, cores"
    check libudev-dev "pkg-config --exists libudev" "Debian's libhwloc links against it"
    check gcc "command -v cc" "Rust links through the C compiler"
}

if ! command -v cargo >/dev/null 2>&1; then
    echo "membar needs Rust 1.89 or later with cargo: see https://rustup.rs" >&2
    exit 1
fi
check_all
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "This is no Debian or Ubuntu: install hwloc (2.8 or later, with headers), udev's headers, pkg-config and a C" \
        "compiler with your package manager, then run make again." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "Installing needs root. Type:" >&2
    echo "    sudo sh -c 'apt-get update && apt-get install --yes --no-install-recommends$missing'" >&2
    exit 1
fi
echo "Installing$missing" >&2
apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq $missing >&2
check_all
if [ -n "$missing" ]; then
    echo "Installed, and still not good enough:$missing. This distribution's version is too old: install a newer one by" \
        "hand (hwloc from https://www.open-mpi.org/projects/hwloc/), then run make again." >&2
    exit 1
fi
