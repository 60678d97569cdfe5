/* listed.c - what an rsync daemon listed, told to the pipeline; and what a probe learns from a list of one file. */
#include <inttypes.h>
#include <stdio.h>

#include "server/store/tree.h"
#include "server/sync/rsync/rsync_engine.h"

static struct sync_entry entry_of(const struct file_list *l, uint32_t index, char *room)
{
    const struct list_entry *en = list_at(l, index);
    struct sync_entry s = {.path = list_path(l, en, room),
                           .size_bytes = list_size(l, en),
                           .mtime_ns = en->mtime_ns,
                           .executable = (en->mode & 0111) != 0,
                           .ref = index};

    switch (list_type(en)) {
    case LIST_FILE:
        s.type = SYNC_FILE;
        break;
    case LIST_LINK:
        s.type = SYNC_LINK;
        s.target = list_target(l, en);
        break;
    case LIST_FOLDER:
        s.type = SYNC_DIR;
        break;
    case LIST_BLANK:
    case LIST_OTHER:
        break;
    }
    return s;
}

static int tell_entry(struct engine *g, const struct file_list *l, uint32_t index,
                      int64_t *top_mtime_ns)
{
    char room[LIST_PATH_MAX + 1];
    char first[LIST_PATH_MAX + 1];
    const struct list_entry *en = list_at(l, index);
    struct sync_entry s = entry_of(l, index, room);
    int32_t leader = list_leader(l, en);

    if (list_type(en) == LIST_FOLDER && slice_eq(s.path, SLICE("."))) {
        *top_mtime_ns = en->mtime_ns;
        return 0;
    }
    if (list_type(en) == LIST_BLANK || slice_eq(s.path, SLICE("."))) {
        return 0;
    }
    if (list_type(en) == LIST_OTHER || !tree_path_valid(s.path)) {
        g->left_out++;
        g->site.log(g->site.log_arg, "left out, neither file nor folder nor link: " SLICE_FMT,
                    SLICE_ARG(s.path));
        return 0;
    }
    if (leader != LIST_NONE) {
        s.leader = list_path(l, list_at(l, (uint32_t)leader), first);
    }
    return g->ev.on_entry(g->arg, &s);
}

/* What changes with the probe file, which `path` names in this list. */
static struct slice cursor_of(const struct file_list *l, const char *path, char *room,
                              size_t room_n)
{
    char at[LIST_PATH_MAX + 1];

    for (uint32_t i = 0; path != NULL && i < list_count(l); i++) {
        const struct list_entry *en = list_at(l, i);
        if (list_type(en) == LIST_FILE && slice_eqs(list_path(l, en, at), path)) {
            int n = snprintf(room, room_n, "%" PRIu64 " %" PRId64, en->size_bytes, en->mtime_ns);
            return slice_of(room, (size_t)n);
        }
    }
    return SLICE_NONE;
}

static int on_probe_list(struct engine *g, const struct file_list *l)
{
    const char *slash = strrchr(g->site.probe, '/');
    char room[64];
    struct slice now = cursor_of(l, slash != NULL ? slash + 1 : g->site.probe, room, sizeof room);

    if (now.n != 0) {
        g->probed = slice_eq(now, buf_slice(&g->cursor)) ? PROBE_SAME : PROBE_CHANGED;
    }
    pull_end_phase(g->pull);
    return 0;
}

int rsync_on_list(void *arg, struct file_list *l)
{
    struct engine *g = arg;
    char room[64];
    struct engine_listed told = {.wire_bytes = link_bytes_in(g->link),
                                 .partial = pull_io_error(g->pull) != 0};
    struct err e = {.code = 0};
    int rc = 0;

    if (g->probing) {
        return on_probe_list(g, l);
    }
    told.cursor = cursor_of(l, g->site.probe, room, sizeof room);
    for (uint32_t i = 0; i < list_count(l) && rc == 0 && !g->closed; i++) {
        rc = tell_entry(g, l, i, &told.top_mtime_ns);
        list_forget(l, i); /* else it would stand beside the roster's own of the same length */
    }
    if (g->closed) {
        return E_CANCELLED;
    }
    told.left_out = g->left_out;
    g->listed = true;
    if (rc != 0) {
        g->broken = true;
        err_set(&e, rc, "the list was given up");
        g->ev.on_listed(g->arg, rc, &e, NULL);
        return rc;
    }
    g->ev.on_listed(g->arg, 0, NULL, &told);
    if (!g->closed) {
        rsync_fill(g);
    }
    return g->closed ? E_CANCELLED : 0;
}
