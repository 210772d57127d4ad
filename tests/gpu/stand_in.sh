# What the tests of this folder share; they name DIR, the build directory, and LANYARD, the program. A folder in which
# programs find the stand-in for CUDA (tests/support/cuda_cpu) as the plug-in and as what passes for a driver, and a
# count of what passed. Read by bash, not run.
dir=${DIR:-build/release}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0 skipped=0

note() { # RESULT NAME
    echo "$1 $2"
    case $1 in pass) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; esac
}

skip() { # NAME REASON
    printf 'skip %s\n    %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

# Runs the function of that name; it fails where the function does, and then what it printed is shown.
try() { # NAME
    if "$1" >"$folder/said" 2>&1 </dev/null; then
        note pass "$1"
    else
        note FAIL "$1"
        sed 's/^/    /' "$folder/said"
    fi
}

place_stand_in() { # FOLDER [PLUGIN]
    local plugin=${2:-$dir/tests/liblanyard_cuda_cpu.so}
    mkdir -p "$1" && cp "$plugin" "$1/libcuda.so.1" && cp "$plugin" "$1/liblanyard_cuda.so"
}

# Every one of the words begins a line of the file.
has_lines() { # FILE WORD...
    local file=$1 word
    shift
    for word; do
        grep -qE "^ *$word( |$)" "$file" && continue
        echo "no line for \"$word\" in:"
        cat "$file"
        return 1
    done
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
