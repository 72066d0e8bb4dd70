#!/usr/bin/env bash
# Tests, as root on a bare Debian, the Debian packages in the folder that is the argument: installs them, compiles
# and runs programs as a user would, upgrades and removes them. `./run deb test` calls it.
set -euo pipefail
debs=${1:?"usage: debian_test.sh DIRECTORY"}
project=$PWD
# shellcheck source=tests/packages/common.sh
. "$project/tests/packages/common.sh"
# The output of a command must contain the first argument.
must_say() {
  local wanted=$1 said
  shift
  said=$("$@" 2>&1) || fail "\`$*\` fails: $said"
  grep -qF "$wanted" <<<"$said" || fail "\`$*\` says \"$said\" and not \"$wanted\""
}
work=$(mktemp -d)
cd "$work"
packages=(libwhorl0 libwhorl-dev whorl-tools whorl-preload)
# Prints the files of the packages of the newest version in a folder.
files_of() { for package in "${packages[@]}"; do ls "$1/${package}"_*.deb; done; }

# Runs a program as 4 ranks, which meet at a loopback address; requires the sum of their numbers from each.
run_four_ranks() {
  local rank
  for rank in 0 1 2 3; do
    WHORL_RANK=$rank WHORL_NRANKS=4 WHORL_ADDRESS=127.0.0.1:23457 timeout 60 "$@" >"rank$rank" 2>&1 &
  done
  wait
  for rank in 0 1 2 3; do
    grep -qxF "rank $rank: 4 ranks, their numbers add up to 6" "rank$rank" ||
      fail "rank $rank of \`$*\` says: $(cat "rank$rank")"
  done
}

step 'install the library, and a program that is linked with it'
apt-get -qq update >/dev/null
before=$(find / -xdev -ipath '*whorl*' -not -path "$project*" -not -path "$debs*" -not -path "$work*")
mapfile -t files < <(files_of "$debs")
install_packages gcc libc6-dev pkg-config "${files[@]}"
library=/usr/lib/$(gcc -print-multiarch)
[ -e "$library/libwhorl.so.0" ] || fail "there is no $library/libwhorl.so.0"
for package in "${packages[@]}"; do dpkg -L "$package"; done | grep -vxF /. | sort -u >installed

step 'compile the program of README.md by pkg-config, shared and with the archive, and run 4 ranks'
sed -n '/^```c$/,/^```$/p' "$project/README.md" | sed '/^```/d' >sum.c
# shellcheck disable=SC2046  # lists of options
cc sum.c $(pkg-config --cflags --libs whorl) -o sum
run_four_ranks ./sum
install_packages g++ cmake make # the archive needs the library of C++
# shellcheck disable=SC2046
cc sum.c $(pkg-config --cflags --libs --static whorl | sed 's/-lwhorl/-l:libwhorl.a/') -o sum_with_archive
if ldd sum_with_archive | grep libwhorl; then fail 'a program with the archive needs the library'; fi
run_four_ranks ./sum_with_archive

step 'programs'
whorl-info >info || fail 'whorl-info fails'
whorl-perf all_reduce --ranks 4 -b 8 -e 64K -f 8 -n 5 >perf || fail "whorl-perf fails: $(cat perf)"
cat perf
for program in /usr/bin/whorl-*; do
  "$program" --help >/dev/null || fail "$program does not start"
  for page in "/usr/share/man/man1/${program##*/}.1.gz" "/usr/share/bash-completion/completions/${program##*/}"; do
    grep -qxF "$page" installed || fail "there is no $page"
  done
done
must_say "schedule rank=3/4" whorl-schedule show allreduce ring 4

step 'libraries that are loaded below other programs'
cat >nccl.c <<'C'
#include <stdio.h>
int ncclGetVersion(int*);
int main(void) {
  int version = 0;
  if (ncclGetVersion(&version) != 0) return 1;
  printf("version %d\n", version);
  return 0;
}
C
if ldconfig -p | grep libnccl; then fail 'the dynamic linker finds the libnccl.so.2 of whorl by itself'; fi
cc nccl.c "$library/whorl/nccl/libnccl.so.2" -o nccl
must_say 'version 22809' env LD_LIBRARY_PATH="$library/whorl/nccl" ./nccl
must_say libwhorl_malloc.so env LD_PRELOAD="$library/whorl/libwhorl_malloc.so" cat /proc/self/maps
LD_PRELOAD=$library/whorl/libwhorl_malloc.so run_four_ranks ./sum

step 'find_package() of CMake'
{ cmake -S "$project/tests/install" -B cmake && cmake --build cmake; } >cmake.log || fail "$(cat cmake.log)"
cmake/program_c
cmake/program_cc

step 'upgrade'
mkdir newer
for file in "${files[@]}"; do
  rm -rf unpacked && dpkg-deb -R "$file" unpacked
  old=$(sed -n 's/^Version: //p' unpacked/DEBIAN/control)
  sed -i "s/^Version: .*/Version: $old+newer/; s/(= $old)/(= $old+newer)/" unpacked/DEBIAN/control
  dpkg-deb -b unpacked newer >/dev/null
done
mapfile -t newer < <(files_of "$PWD/newer")
install_packages "${newer[@]}"
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${Version}' "$package")" = "$old+newer" ] || fail "$package has not been upgraded"
done
run_four_ranks ./sum
whorl-perf all_reduce --ranks 4 -b 8 -e 8 -n 5 >/dev/null || fail 'after an upgrade whorl-perf fails'

step 'the library alone is kept by a program that needs it, not by headers'
apt-get -qq purge -y libwhorl-dev whorl-preload >/dev/null 2>&1
run_four_ranks ./sum
if echo '#include <whorl.h>' | cc -E - >/dev/null 2>&1; then fail 'the header is left'; fi

step 'remove'
apt-get -qq purge -y 'libwhorl*' 'whorl-*' >/dev/null 2>&1 || fail 'the packages cannot be removed'
left=$(while read -r path; do
  if [ -e "$path" ] && ! dpkg -S "$path" >/dev/null 2>&1; then echo "$path"; fi
done <installed)
[ -z "$left" ] || fail "these are left: $left"
# Logs and archives of apt are not of the packages.
after=$(find / -xdev -ipath '*whorl*' -not -path "$project*" -not -path "$debs*" -not -path "$work*" \
  -not -path '/var/cache/apt/*' -not -path '/var/log/*')
[ "$before" = "$after" ] || fail "these are left: $after"
if ./sum >/dev/null 2>&1; then fail 'a program finds a library that has been removed'; fi
echo 'the packages are installed, used, upgraded and removed'
