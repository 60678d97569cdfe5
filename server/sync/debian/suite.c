#include "server/sync/debian/suite.h"

static bool listed(const char *const *list, size_t n, struct slice all, struct slice word)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_eqs(word, list[i])) {
            return true;
        }
    }
    return n == 0 && release_names(all, word);
}

static bool wants_architecture(const struct sync_conf *c, const struct release *r,
                               struct slice arch)
{
    return slice_eqs(arch, "all") ||
           listed(c->architectures, c->architectures_count, r->architectures, arch) ||
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

bool suite_wants(const struct sync_conf *c, const struct release *r, struct slice path)
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
