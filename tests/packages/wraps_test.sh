#!/usr/bin/env bash
# Builds the library, a program and a test in the folder that is the argument, with every library of
# subprojects/*.wrap in place of the installed one, and uses them. Archives that are not in subprojects/packagecache
# are downloaded; exit status 77: they cannot be.
set -euo pipefail
work=${1:?"usage: wraps_test.sh DIRECTORY"}
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/packages/common.sh
. "$project/tests/packages/common.sh"

# A folder of links to the checkout, with subprojects of its own, so that nothing is unpacked in the checkout.
rm -rf --one-file-system "$work"
mkdir -p "$work/source"
cd "$work"
ln -s "$project"/* source
rm source/subprojects
mkdir source/subprojects
cp -r "$project"/subprojects/*.wrap "$project/subprojects/packagefiles" source/subprojects
if [ -d "$project/subprojects/packagecache" ]; then
  cp -r "$project/subprojects/packagecache" source/subprojects
fi

step 'archives'
# An answer of the server, whatever it is, is left to Meson: a wrong address is an error.
python3 - source/subprojects <<'PY'
import configparser
import pathlib
import sys
import urllib.error
import urllib.request

folder = pathlib.Path(sys.argv[1])
for file in sorted(folder.glob("*.wrap")):
    wrap = configparser.ConfigParser(interpolation=None)
    wrap.read(file)
    archive = wrap["wrap-file"]["source_filename"]
    if (folder / "packagecache" / archive).exists():
        continue
    address = wrap["wrap-file"]["source_url"]
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except urllib.error.HTTPError:
        pass
    except OSError as error:
        print(f"skipped: {archive} is not in subprojects/packagecache, and {address} cannot be reached: {error}")
        sys.exit(77)
PY

step 'configure'
wraps=$(cd source/subprojects && printf '%s,' *.wrap | sed 's/\.wrap//g; s/,$//')
# Nothing is optimised, since speed is not what is tested.
meson setup source build --force-fallback-for="$wraps" -Dtests=enabled -Dperf=enabled -Dwerror=true \
  -Dcuda=disabled -Ddefault_library=both -Dbuildtype=plain -Dcpp_args=-O0

step 'build'
meson compile -C build whorl:shared_library whorl:static_library whorl-info base_test

step 'the library exports and needs nothing of them, and nothing of them is installed'
library=build/src/libwhorl.so
python3 "$project/tests/install/exported_names.py" "$library"
if readelf -d "$library" | grep -E 'NEEDED.*(fmt|pugixml)'; then fail 'the library needs installed ones'; fi
meson introspect build --installed |
  python3 -c 'import json, sys; print(*json.load(sys.stdin).values(), sep="\n")' >installed
grep -q libwhorl.a installed || fail 'the list of installed files has no archive'
if grep -iE 'fmt|pugixml|nlohmann|cli11|gtest|gmock' installed; then fail 'these are installed'; fi

step 'run the program of README.md with the archive, whorl-info, and a test'
sed -n '/^```c$/,/^```$/p' "$project/README.md" | sed '/^```/d' >sum.c
needed=$(sed -n 's/^Libs.private: //p' build/meson-private/whorl.pc)
# shellcheck disable=SC2086  # a list of options
cc sum.c -I"$project/include" build/src/libwhorl.a $needed -o sum
./sum | grep -xF 'rank 0: 1 ranks, their numbers add up to 0'
build/tools/whorl-info >info || fail "whorl-info fails: $(cat info)"
build/tests/unit/base/base_test --gtest_brief=1
echo 'the library is built, used and installed without packages of these libraries'
