#include "server/rsync/choice.h"

#include "common/os/clock.h"

enum { NAME_STEPS = 64 }; /* of a budget: a name is read and understood */

/* The paths of a client's arguments are its module's, with that in front. */
static int cut_module(struct choice *c, struct slice *path, struct err *e)
{
    struct slice module = slice_cut(path, '/');

    return slice_eqs(module, c->welcome->module)
               ? 0
               : err_set(e, E_INVALID, "the path is not of this module");
}

static int tell_missing(struct choice *c, const char *before, struct slice path,
                        const struct err *why, struct err *e)
{
    struct buf text = BUF_INIT(MUX_TEXT_MAX);

    c->io_error |= why->code != E_NOTFOUND;
    if (why->code == E_NOTFOUND && c->options->absent_is_fine) {
        return 0;
    }
    c->missing = true;
    buf_addf(&text, "rsync: [sender] link_stat \"%s", before);
    buf_adds(&text, path);
    buf_addf(&text, "\" (in %s) failed: %s\n", c->welcome->module, why->text);
    stream_message(c->stream, MUX_ERROR_XFER, buf_slice(&text));
    buf_free(&text);
    return stream_push(c->stream, e);
}

static int allowed(const struct choice *c, const struct ask *a, struct err *e)
{
    return welcome_reads(c->welcome, slice_of(a->path, a->path_n))
               ? 0
               : err_set(e, E_DENIED, "that path is not yours to read");
}

static bool is_absent(int rc)
{
    return rc == E_NOTFOUND || rc == E_INVALID;
}

/* --- arguments ------------------------------------------------------------------------------------------------------------ */

static int add_paths(struct choice *c, struct err *e)
{
    struct slice rest = c->options->paths;
    int rc = 0;

    while (rest.n > 0 && rc == 0) {
        struct slice path = slice_cut(&rest, '\0');
        struct ask a;
        rc = cut_module(c, &path, e);
        if (rc != 0) {
            return rc;
        }
        rc = ask_path(path, c->options, &a, e);
        rc = rc != 0 ? rc : allowed(c, &a, e);
        rc = rc != 0 ? rc : view_add(&c->view, &a, c->options, c->filter, e);
        if (is_absent(rc)) {
            const struct err why = *e;
            rc = tell_missing(c, "", path, &why, e);
        }
    }
    return rc;
}

/* --- names ---------------------------------------------------------------------------------------------------------------- */

/* The folder that all names stand in: one path, and without it there is nothing to do. */
static int find_base(struct choice *c, struct ask *base, struct err *e)
{
    static const struct options plain = {.recurse = false};
    struct slice rest = c->options->paths;
    struct slice path = slice_cut(&rest, '\0');
    const char *why;
    uint32_t at;
    int rc = cut_module(c, &path, e);

    rc = rc != 0 ? rc : ask_path(path, &plain, base, e);
    if (rc != 0) {
        return rc;
    }
    if (rest.n > 0 || base->pattern.n > 0) {
        return err_set(e, E_INVALID, "a list of names stands below one folder");
    }
    if (base->path_n == 0) { /* of the module itself each name is judged alone */
        return 0;
    }
    rc = allowed(c, base, e);
    if (rc != 0 || list_find(c->view.list, slice_of(base->path, base->path_n), true, &at)) {
        return rc;
    }
    why = list_find(c->view.list, slice_of(base->path, base->path_n), false, &at)
              ? "Not a directory (20)"
              : "No such file or directory (2)";
    c->exit_code = CHOICE_EXIT_SELECTING;
    return err_set(e, E_NOTFOUND, "rsync: [sender] change_dir \"" SLICE_FMT "\" (in %s) failed: %s",
                   SLICE_ARG(slice_of(base->path, base->path_n)), c->welcome->module, why);
}

static int add_name(struct choice *c, const struct ask *base, struct slice name, struct err *e)
{
    struct err why = {.code = 0};
    struct ask a;
    int rc = ask_name(base, name, c->options, &a, &why);

    if (rc != 0) {
        return tell_missing(c, "", name, &why, e);
    }
    rc = allowed(c, &a, &why);
    rc = rc != 0 ? rc : view_add_name(&c->view, &a, c->options, c->filter, &why);
    if (is_absent(rc)) {
        return tell_missing(c, base->path_n > 0 ? "/" : "", slice_of(a.path, a.path_n), &why, e);
    }
    if (rc != 0) {
        *e = why;
    }
    return rc;
}

/* The time of each is looked at: a list that comes slowly ends as one that does not end. */
static int next_name(struct choice *c, struct buf *name, uint64_t *left, struct err *e)
{
    int rc = stream_until(c->stream, '\0', name, left, e);

    if (rc == E_TOOBIG) {
        return err_set(e, rc, "the list of names goes on beyond %d MiB: give it in parts",
                       CHOICE_BYTES_MAX >> 20);
    }
    if (rc == E_TIMEOUT) {
        c->exit_code = CHOICE_EXIT_TIMEOUT;
        return err_set(e, rc, "the list of names has no end, or comes too slowly");
    }
    return rc != 0 ? rc : budget_spend(c->budget, NAME_STEPS + name->n, e);
}

static int read_names(struct choice *c, const struct ask *base, struct err *e)
{
    static const struct err too_long = {.code = E_INVALID, .text = "File name too long (36)"};
    struct buf name = BUF_INIT(LIST_PATH_MAX);
    uint64_t left = CHOICE_BYTES_MAX;
    int rc;

    while ((rc = next_name(c, &name, &left, e)) == 0 && (name.n > 0 || name.rc != 0)) {
        rc = name.rc == 0 ? add_name(c, base, buf_slice(&name), e)
                          : tell_missing(c, "...", SLICE_NONE, &too_long, e);
        if (rc != 0) {
            break;
        }
    }
    buf_free(&name);
    return rc;
}

static int add_names(struct choice *c, struct err *e)
{
    bool bare = c->welcome->version < 31;
    struct ask base;
    int rc = bare ? stream_bare(c->stream, true, e) : 0;

    rc = rc != 0 ? rc : find_base(c, &base, e);
    c->stream->deadline_ms = clock_now_ms() + (uint64_t)c->stream->stall_ms * CHOICE_STALLS;
    rc = rc != 0 ? rc : read_names(c, &base, e);
    if (rc == 0 && bare) {
        rc = stream_bare(c->stream, false, e);
    }
    return rc != 0 ? rc : view_settle(&c->view, e);
}

int choice_make(struct choice *c, const struct file_list *l, struct err *e)
{
    c->exit_code = CHOICE_EXIT_REFUSED;
    view_init(&c->view, l, c->budget);
    return c->options->names ? add_names(c, e) : add_paths(c, e);
}
