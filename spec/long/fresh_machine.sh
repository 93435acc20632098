#!/bin/sh
# Both commands of the README, on a machine with nothing on it: a Debian made by
# debootstrap, a fresh clone, packages from the mirror. limit: 60 min
# Needs root, debootstrap and git. /proc, /sys and terminals are mounted where that
# is allowed; without /proc the specs that look at processes fail, without /sys
# those that read what MPI says.
set -eu
suite=${1:-bookworm}
mirror=${2:-} # empty: the one that debootstrap knows
[ "$(id -u)" = 0 ] || { echo 'fresh_machine.sh needs root'; exit 1; }
root=$(mktemp -d)
trap 'umount "$root/proc" "$root/sys" "$root/dev/pts" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT INT TERM

debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$root" \
  ${mirror:+"$mirror"}
cp /etc/resolv.conf "$root/etc/"
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
mount -t proc proc "$root/proc" 2>/dev/null || echo 'no /proc there'
mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || echo 'no /sys there'
mount -t devpts devpts "$root/dev/pts" 2>/dev/null || echo 'no terminals there'
git clone -q "$(pwd)" "$root/flare"

timed() { # a command there, and its time as a figure
  start=$(date +%s) status=0
  env -u FLARE_DATA chroot "$root" /bin/sh -c "cd /flare && $1" </dev/null >"$root/log" 2>&1 || status=$?
  cat "$root/log"
  echo "figure: $suite, $(nproc) cores at a load of $(cut -d' ' -f2 /proc/loadavg), $1:" \
    "$(($(date +%s) - start)) s, status $status: $(tail -n 1 "$root/log")"
  [ "$status" = 0 ] || failed=1
}

# without --yes and without a terminal it must name the packages and stop with 3
status=0
chroot "$root" /flare/bootstrap build </dev/null || status=$?
[ "$status" = 3 ]
failed=0
timed './bootstrap demo --yes'
timed './bootstrap test --yes'
touch "$root/flare/runtime/ops/op.c"
timed './bootstrap test --yes # again, one file changed'
exit $failed
