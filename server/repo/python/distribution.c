#include "server/repo/python/distribution.h"

#include <stdio.h>

#include "server/repo/python/name.h"

/* --- names ------------------------------------------------------------------------------------ */

static bool take_version(struct slice text, struct arena *a, struct distribution *out)
{
    char *plain = arena_cstr(a, text);

    for (size_t i = 0; i < text.n; i++) {
        plain[i] = plain[i] == '_' ? '-' : plain[i]; /* names of files have no '-' inside a part */
    }
    out->version_text = slice_of(plain, text.n);
    return pyversion_parse(out->version_text, &out->version);
}

static bool read_wheel(struct slice stem, struct slice project, struct arena *a,
                       struct distribution *out)
{
    struct slice part[6];
    size_t n = 0;

    while (stem.n != 0 && n < ARRAY_LEN(part)) {
        part[n++] = slice_cut(&stem, '-');
    }
    if (stem.n != 0 || n < 5 || !slice_eq(pyname_normal(part[0], a), project)) {
        return false;
    }
    out->wheel = true;
    out->python = part[n - 3];
    out->abi = part[n - 2];
    out->platform = part[n - 1];
    return take_version(part[1], a, out);
}

/* Older names have '-' in them too: what stands behind the project's name is the version. */
static bool read_source(struct slice stem, struct slice project, struct arena *a,
                        struct distribution *out)
{
    for (size_t i = stem.n; i-- > 1;) {
        if (stem.p[i] == '-' && slice_eq(pyname_normal(slice_first(stem, i), a), project)) {
            return take_version(slice_from(stem, i + 1), a, out);
        }
    }
    return false;
}

bool distribution_parse(struct slice file, struct slice project, struct arena *a,
                        struct distribution *out)
{
    static const char *const ends[] = {".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz", NULL};

    *out = (struct distribution){0};
    if (file.n > 512) {
        return false;
    }
    if (slice_ends(file, SLICE(".whl"))) {
        return read_wheel(slice_first(file, file.n - 4), project, a, out);
    }
    for (size_t i = 0; ends[i] != NULL; i++) {
        if (slice_ends(file, slice_str(ends[i]))) {
            return read_source(slice_first(file, file.n - strlen(ends[i])), project, a, out);
        }
    }
    return false;
}

/* --- tags ------------------------------------------------------------------------------------- */

/* "cp311" -> 11; "py3" -> major alone. False: of another Python. */
static bool tag_number(struct slice tag, const char *prefix, uint64_t *minor, bool *bare)
{
    size_t n = strlen(prefix);

    if (!slice_starts(tag, slice_str(prefix)) || tag.n == n || tag.p[n] != '3') {
        return false;
    }
    tag = slice_from(tag, n + 1);
    *bare = tag.n == 0;
    *minor = 0;
    return *bare || slice_u64(tag, minor);
}

static bool abi_fits(struct slice abi, struct slice python, uint64_t minor, const struct pyenv *env)
{
    if (slice_eqs(abi, "none")) {
        return minor == env->minor;
    }
    if (slice_eqs(abi, "abi3")) {
        return minor <= env->minor;
    }
    if (slice_eq(abi, python)) {
        return minor == env->minor;
    }
    /* up to 3.7 with the letters of its build */
    return minor == env->minor && slice_starts(abi, python) &&
           slice_eqs(slice_from(abi, python.n), "m");
}

static bool python_fits(struct slice python, struct slice abi, const struct pyenv *env)
{
    uint64_t minor;
    bool bare;

    if (tag_number(python, "py", &minor, &bare)) {
        return slice_eqs(abi, "none") && (bare || minor <= env->minor);
    }
    return tag_number(python, "cp", &minor, &bare) &&
           (bare ? slice_eqs(abi, "none") || slice_eqs(abi, "abi3")
                 : abi_fits(abi, python, minor, env));
}

/* "manylinux_2_28_x86_64" behind its word: two numbers and the rest. */
static bool two_numbers(struct slice s, uint64_t *a, uint64_t *b, struct slice *rest)
{
    struct slice first = slice_cut(&s, '_');
    struct slice second = slice_cut(&s, '_');

    *rest = s;
    return slice_u64(first, a) && slice_u64(second, b);
}

/* The old names of glibc's versions (PEP 600). */
static bool read_manylinux(struct slice tag, uint64_t *major, uint64_t *minor, struct slice *arch)
{
    static const struct {
        const char *name;
        uint64_t minor;
    } old[] = {{"manylinux1_", 5}, {"manylinux2010_", 12}, {"manylinux2014_", 17}};

    for (size_t i = 0; i < ARRAY_LEN(old); i++) {
        if (slice_starts(tag, slice_str(old[i].name))) {
            *major = 2;
            *minor = old[i].minor;
            *arch = slice_from(tag, strlen(old[i].name));
            return true;
        }
    }
    return slice_starts(tag, SLICE("manylinux_")) &&
           two_numbers(slice_from(tag, 10), major, minor, arch);
}

/* A wheel's tag and what the platform can do: older numbers, the same machine. */
static bool not_newer(struct slice tag, struct slice platform, const char *word)
{
    size_t n = strlen(word);
    uint64_t a, b, x, y;
    struct slice arch, ours;

    if (!slice_starts(tag, slice_str(word)) || !slice_starts(platform, slice_str(word)) ||
        !two_numbers(slice_from(tag, n), &a, &b, &arch) ||
        !two_numbers(slice_from(platform, n), &x, &y, &ours)) {
        return false;
    }
    return (a < x || (a == x && b <= y)) &&
           (slice_eq(arch, ours) ||
            (strcmp(word, "macosx_") == 0 &&
             (slice_eqs(arch, "universal2") || slice_eqs(arch, "universal"))));
}

static bool platform_fits(struct slice tag, struct slice platform)
{
    uint64_t a, b, x, y;
    struct slice arch, ours;

    if (slice_eqs(tag, "any") || slice_eq(tag, platform)) {
        return true;
    }
    if (read_manylinux(platform, &x, &y, &ours)) {
        if (slice_starts(tag, SLICE("linux_"))) {
            return slice_eq(slice_from(tag, 6), ours);
        }
        return read_manylinux(tag, &a, &b, &arch) && a == x && b <= y && slice_eq(arch, ours);
    }
    return not_newer(tag, platform, "musllinux_") || not_newer(tag, platform, "macosx_");
}

bool distribution_fits(const struct distribution *d, const struct pyenv *env)
{
    struct slice platforms = d->platform;

    while (platforms.n != 0) {
        struct slice platform = slice_cut(&platforms, '.');
        struct slice pythons = d->python;
        if (!platform_fits(platform, slice_str(env->platform))) {
            continue;
        }
        while (pythons.n != 0) {
            struct slice python = slice_cut(&pythons, '.');
            struct slice abis = d->abi;
            while (abis.n != 0) {
                if (python_fits(python, slice_cut(&abis, '.'), env)) {
                    return true;
                }
            }
        }
    }
    return false;
}
