#!/bin/sh
# nvcc.sh NVCC SOURCE FOLDER STEM ARCH FLAG...: compiles SOURCE to FOLDER/STEM.o, and keeps beside it the PTX (STEM.ptx),
# the SASS (STEM.cubin) and what ptxas said of registers and spills (STEM.ptxas).
set -eu
nvcc=$1 source=$2 folder=$3 stem=$4 arch=$5
shift 5
"$nvcc" "$@" --keep --keep-dir "$folder" -MD -MF "$folder/$stem.d" -MT "$folder/$stem.o" -c "$source" -o "$folder/$stem.o" \
  2>"$folder/$stem.ptxas" || {
  cat "$folder/$stem.ptxas" >&2
  exit 1
}
grep -vE '^ptxas info|^[[:space:]]+[0-9]+ bytes stack|^$' "$folder/$stem.ptxas" >&2 || true
for file in "$folder"/*.sm_"$arch".cubin "$folder/$stem".cubin; do
  if [ -f "$file" ] && [ "$file" != "$folder/$stem.cubin" ]; then mv "$file" "$folder/$stem.cubin"; fi
done
for file in "$folder"/"$stem"*.ptx; do
  case $file in "$folder/$stem.ptx") ;; *compute_"$arch".ptx) mv "$file" "$folder/$stem.ptx" ;; esac
done
rm -f "$folder"/*.ii "$folder"/*.cudafe* "$folder"/*.gpu "$folder"/*.stub.c "$folder"/*.fatbin* "$folder"/*.module_id \
  "$folder"/*.reg.c "$folder"/*.cpp1* "$folder"/*.cpp4*
