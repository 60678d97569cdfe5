#include "server/sync/debian/release.h"

#include <stdlib.h>

#include "server/store/tree.h"
#include "server/sync/debian/deb822.h"

enum { FILES_MAX = 1 << 20 };

struct reader {
    struct release *r;
    bool sums; /* the field SHA256 was there */
};

static struct slice cut_release_word(struct slice *rest)
{
    size_t n = 0;
    struct slice w;

    *rest = slice_trim(*rest);
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t') {
        n++;
    }
    w = slice_first(*rest, n);
    *rest = slice_from(*rest, n);
    return w;
}

/* A word of a list that is split by blanks. */
static bool names_word(struct slice list, struct slice wanted)
{
    while ((list = slice_trim(list)).n != 0) {
        if (slice_eq(cut_release_word(&list), wanted)) {
            return true;
        }
    }
    return false;
}

/* " <hex> <size> <path>" */
static int add_release_file(struct reader *x, struct slice line, struct err *e)
{
    struct release *r = x->r;
    struct release_file f;
    struct slice hex = cut_release_word(&line), size = cut_release_word(&line);

    f.path = slice_trim(line);
    if (!digest_parse(hex, &f.digest) || !slice_u64(size, &f.size_bytes) ||
        !tree_path_valid(f.path)) {
        r->left_out++;
        return 0;
    }
    if (r->count == FILES_MAX) {
        return err_set(e, E_TOOBIG, "Release lists more than %d files", FILES_MAX);
    }
    if (r->count == r->room) {
        r->room = r->room != 0 ? 2 * r->room : 256;
        r->file = realloc(r->file, r->room * sizeof r->file[0]);
        CHECK(r->file != NULL);
    }
    f.path = arena_copy(&r->arena, f.path);
    r->file[r->count++] = f;
    return 0;
}

static int on_release_field(void *arg, struct slice field, bool first, struct slice value,
                            struct err *e)
{
    struct reader *x = arg;

    if (slice_ieq(field, SLICE("sha256"))) {
        x->sums = true;
        return value.n != 0 ? add_release_file(x, value, e) : 0;
    }
    if (first && slice_ieq(field, SLICE("components"))) {
        x->r->components = arena_copy(&x->r->arena, value);
    } else if (first && slice_ieq(field, SLICE("architectures"))) {
        x->r->architectures = arena_copy(&x->r->arena, value);
    } else if (first && slice_ieq(field, SLICE("acquire-by-hash"))) {
        x->r->by_hash = slice_ieq(value, SLICE("yes"));
    }
    return 0;
}

static int on_release_stanza_end(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    return 0;
}

/* What stands inside a clear signature: behind the armor's own header, up to the signature. */
static struct slice signed_text(struct slice all)
{
    static const char begin[] = "-----BEGIN PGP SIGNED MESSAGE-----";
    static const char end[] = "\n-----BEGIN PGP SIGNATURE-----";
    struct slice rest = all;
    const char *at;

    if (!slice_starts(all, SLICE("-----BEGIN PGP SIGNED MESSAGE-----"))) {
        return all;
    }
    rest = slice_from(rest, sizeof begin - 1);
    while (rest.n != 0) { /* "Hash: ..." up to an empty line */
        struct slice line = slice_cut(&rest, '\n');
        if (line.p != all.p + sizeof begin - 1 && slice_trim(line).n <= 1 &&
            (line.n == 0 || line.p[0] == '\r')) {
            break;
        }
    }
    at = rest.n != 0 ? memmem(rest.p, rest.n, end, sizeof end - 1) : NULL;
    return at != NULL ? slice_first(rest, (size_t)(at - rest.p) + 1) : rest;
}

static int compare_release_paths(const void *a, const void *b)
{
    return slice_cmp(((const struct release_file *)a)->path,
                     ((const struct release_file *)b)->path);
}

int release_read(struct slice bytes, struct release *out, struct err *e)
{
    struct reader x = {.r = out};
    struct deb822_events ev = {on_release_field, on_release_stanza_end, &x};
    struct deb822 d;
    int rc;

    *out = (struct release){0};
    deb822_init(&d, &ev);
    rc = deb822_feed(&d, signed_text(bytes), e);
    rc = rc != 0 ? rc : deb822_finish(&d, e);
    if (rc == 0 && !x.sums) {
        rc = err_set(e, E_INVALID, "this is not a Release file, or it has no SHA256 section");
    }
    deb822_fini(&d);
    if (rc != 0) {
        release_free(out);
    } else if (out->count != 0) {
        qsort(out->file, out->count, sizeof out->file[0], compare_release_paths);
    }
    return rc;
}

void release_free(struct release *r)
{
    free(r->file);
    arena_fini(&r->arena);
    *r = (struct release){0};
}

const struct release_file *release_find(const struct release *r, struct slice path)
{
    struct release_file wanted = {.path = path};

    return r->count != 0 ? bsearch(&wanted, r->file, r->count, sizeof wanted, compare_release_paths)
                         : NULL;
}

/* --- which of its files are wanted --- */

static bool is_listed_word(const char *const *list, size_t n, struct slice all, struct slice word)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_eqs(word, list[i])) {
            return true;
        }
    }
    return n == 0 && names_word(all, word);
}

static bool wants_architecture(const struct sync_conf *c, const struct release *r,
                               struct slice arch)
{
    return slice_eqs(arch, "all") ||
           is_listed_word(c->architectures, c->architectures_count, r->architectures, arch) ||
           (c->architectures_count == 0 && slice_eqs(arch, "source"));
}

/* "amd64.gz" of "Contents-amd64.gz" */
static struct slice architecture_in(struct slice name, const char *before)
{
    struct slice rest = slice_from(name, strlen(before));

    return slice_cut(&rest, '.');
}

static bool wanted_in_component(const struct sync_conf *c, const struct release *r,
                                struct slice rest)
{
    struct slice name = rest;
    struct slice folder = slice_cut(&name, '/');

    if (folder.n == rest.n) {
        return slice_starts(rest, SLICE("Contents-")) &&
               wants_architecture(c, r, architecture_in(rest, "Contents-"));
    }
    if (slice_find(name, '/') >= 0) {
        return false; /* debian-installer/, Packages.diff/ ... */
    }
    if (slice_starts(folder, SLICE("binary-"))) {
        return wants_architecture(c, r, slice_from(folder, 7));
    }
    if (slice_eqs(folder, "source")) {
        return wants_architecture(c, r, SLICE("source"));
    }
    if (slice_eqs(folder, "dep11")) {
        return slice_starts(name, SLICE("Components-")) &&
               wants_architecture(c, r, architecture_in(name, "Components-"));
    }
    if (slice_eqs(folder, "cnf")) {
        return slice_starts(name, SLICE("Commands-")) &&
               wants_architecture(c, r, architecture_in(name, "Commands-"));
    }
    return slice_eqs(folder, "i18n");
}

static bool component_wants(const struct sync_conf *c, const struct release *r,
                            struct slice component, struct slice path)
{
    return path.n > component.n + 1 && slice_starts(path, component) &&
           path.p[component.n] == '/' &&
           wanted_in_component(c, r, slice_from(path, component.n + 1));
}

bool release_wants(const struct release *r, const struct sync_conf *c, struct slice path)
{
    struct slice rest = r->components;

    for (size_t i = 0; i < c->components_count; i++) {
        if (component_wants(c, r, slice_str(c->components[i]), path)) {
            return true;
        }
    }
    while (c->components_count == 0 && rest.n != 0) {
        struct slice one = slice_cut(&rest, ' ');
        if (one.n != 0 && component_wants(c, r, one, path)) {
            return true;
        }
    }
    return false;
}
