#!/usr/bin/env bash
# A newcomer on a machine that has nothing: a minimal Debian 12 root, a clean clone of the current commit in it, ./dev demo,
# then every line of README and of the tour as they stand, the live ones in network namespaces, and the packages. Optional,
# not in CI: it needs root, debootstrap, the network, about 4 GiB of disk and 15 minutes.
#
#   scripts/fresh_machine_test.sh [--user] [--keep] [COMMAND...]
#     --user    run as an ordinary user with sudo instead of as root; README's lines for root are not run then
#     --keep    leave the root in place and print where it is
#     COMMAND   "readme", or arguments of ./dev, one run each; default: demo readme package
#
# The Debian mirror, proxy and certificates are those of this machine's apt; none is written here.
set -euo pipefail

die() { printf 'fresh_machine_test: %s\n' "$*" >&2; exit 1; }

if [ "${1:-}" = --inside ]; then
  # In a mount namespace of its own: everything mounted here is gone when the script ends.
  root="$2" as_user="$3"
  shift 3
  mount --make-rprivate /
  # A mount of its own, as `ip netns exec` expects of /.
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs tmpfs "$root/tmp"
  home=/root
  as=()
  if [ "$as_user" = yes ]; then
    home=/home/builder
    as=(setpriv --reuid=builder --regid=builder --init-groups)
  fi
  in_root() {
    (cd / && chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      HOME="$home" LANG=C.UTF-8 CI=true "$@" </dev/null)
  }
  # What README names beside the clone, then its lines, by the build of ./dev demo alone.
  readme() {
    in_root DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends iproute2 iputils-ping iperf3 || return
    in_root "${as[@]}" sh -c 'cd "$HOME/sluice" && exec python3 tests/readme_test.py --binary build/cpu/sluice README.md docs/tour.md'
  }
  for command in "$@"; do
    printf '\n##### %s\n' "$command"
    start=$SECONDS
    if [ "$command" = readme ]; then
      readme
    else
      # shellcheck disable=SC2086  # a COMMAND may be several words: "test --all"
      in_root "${as[@]}" "$home/sluice/dev" $command
    fi || die "$command failed with exit code $? after $((SECONDS - start)) s"
    printf '##### %s: passed in %d s\n' "$command" $((SECONDS - start))
  done
  exit 0
fi

keep=no as_user=no
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) keep=yes ;;
    --user) as_user=yes ;;
    -*) sed -n '2,11p' "$0" >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done
[ $# -gt 0 ] || set -- demo readme package

[ "$(id -u)" -eq 0 ] || die "must run as root (chroot, mount)"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
repository="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)"
[ -z "$(git -C "$repository" status --porcelain)" ] || printf 'note: uncommitted changes are not in the clone\n'

release=bookworm
# What apt knows as Debian's main archive for this release: origin and URI, as configured on this machine.
targets="$(apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' | sort -u)"
mirror="$(awk -F'|' -v r="$release" '$1 == "Debian" && $3 == r && $4 == "main" { print $5; exit }' <<<"$targets")"
[ -n "$mirror" ] || die "this machine's apt has no Debian $release main archive"
sources="$(awk -F'|' -v r="$release" '$1 == "Debian" && index($3, r) == 1 && $4 == "main" { print "deb " $5 " " $3 " main" }' <<<"$targets")"
proxy="$(apt-config dump --format '%v%n' Acquire::http::Proxy)"
[ -z "$proxy" ] || export http_proxy="$proxy"

root="$(mktemp -d "${TMPDIR:-/var/tmp}/sluice-fresh.XXXXXX")"
chmod 755 "$root"  # mktemp's 700 would lock the ordinary user out of /
cleanup() {
  if [ "$keep" = yes ]; then printf 'kept: %s\n' "$root"; else rm -rf --one-file-system "$root"; fi
}
trap cleanup EXIT

printf '##### a minimal Debian %s in %s\n' "$release" "$root"
debootstrap --variant=minbase "$release" "$root" "$mirror"
printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
apt-config dump Acquire | grep -vE '::(IndexTargets|Languages|CompressionTypes)' >"$root/etc/apt/apt.conf.d/99host" || true
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
if [ -f /etc/hosts ]; then cp -L /etc/hosts "$root/etc/hosts"; fi
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
home=/root
if [ "$as_user" = yes ]; then
  home=/home/builder
  chroot "$root" sh -c 'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends sudo'
  chroot "$root" useradd -m builder
  printf 'builder ALL=(ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/builder"
fi
git clone --quiet --no-local "$repository" "$root$home/sluice"
git -C "$root$home/sluice" checkout --quiet --detach "$(git -C "$repository" rev-parse HEAD)"
if [ "$as_user" = yes ]; then chroot "$root" chown -R builder:builder "$home/sluice"; fi

unshare --mount --pid --fork "$0" --inside "$root" "$as_user" "$@"
printf '\nfresh machine: all of { %s } passed\n' "$*"
