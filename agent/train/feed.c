#include "agent/train/feed.h"

#include <errno.h>
#include <fts.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/train/added.h"
#include "agent/train/source.h"
#include "common/codec/glob.h"

/* So close to the end of the present text it is unknown yet whether there may be a cut. */
enum { UNDECIDED = ADDED_MAX_BYTES + 4 };

struct input {
    char *path;
    bool text_only; /* found in a folder: binary ones are passed over */
};

struct feed {
    const struct tokenizer *t;
    struct slice end_of_text;
    struct input *input;
    size_t inputs;
    size_t room;
    uint64_t bytes;
    uint64_t files;
    uint64_t skipped;
    size_t block_bytes;

    size_t at;             /* the input that is open, or next */
    uint64_t before_bytes; /* of the inputs that are done */
    struct source *source;
    struct buf left; /* read, behind the last cut */
    bool lines;
    bool begun;    /* a block of this file was given */
    uint64_t line; /* number of the next */
};

/* --- the list --------------------------------------------------------------------------------- */

static void add_feed_file(struct feed *f, const char *path, uint64_t bytes, bool text_only)
{
    if (f->inputs == f->room) {
        f->room = 2 * f->room + 64;
        f->input = realloc(f->input, f->room * sizeof *f->input);
        CHECK(f->input != NULL);
    }
    f->input[f->inputs++] = (struct input){mem_strdup(path), text_only};
    f->bytes += bytes;
}

static int compare_fts_names(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* In the order of their names, so that the same tree gives the same shards. */
static int add_folder(struct feed *f, char *path, const char *include, struct err *e)
{
    char *roots[] = {path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_fts_names);
    FTSENT *at;
    int rc = 0;

    if (walk == NULL) {
        return err_sys(e, "%s", path);
    }
    while (rc == 0 && (at = fts_read(walk)) != NULL) {
        if (at->fts_info == FTS_ERR || at->fts_info == FTS_DNR || at->fts_info == FTS_NS) {
            errno = at->fts_errno;
            rc = err_sys(e, "%s", at->fts_path);
        } else if (at->fts_info == FTS_F &&
                   glob_match(slice_str(include), slice_str(at->fts_name))) {
            add_feed_file(f, at->fts_path, (uint64_t)at->fts_statp->st_size, true);
        }
    }
    fts_close(walk);
    return rc;
}

/* A job file has no shell to expand a pattern. */
static int add_pattern(struct feed *f, const char *pattern, const char *include, struct err *e)
{
    glob_t found = {0};
    int rc = 0;

    if (glob(pattern, GLOB_NOCHECK, NULL, &found) != 0) {
        rc = err_set(e, E_NOTFOUND, "%s: no file matches", pattern);
    }
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        char *path = found.gl_pathv[i];
        struct stat st;

        if (stat(path, &st) == -1) {
            rc = err_sys(e, "%s", path);
        } else if (S_ISDIR(st.st_mode)) {
            rc = add_folder(f, path, include, e);
        } else {
            add_feed_file(f, path, (uint64_t)st.st_size, false);
        }
    }
    globfree(&found);
    return rc;
}

int feed_open(char *const *path, size_t paths, const char *include, const struct tokenizer *t,
              struct feed **out, struct err *e)
{
    struct feed *f = NEW(struct feed);
    int64_t end_of_text = tokenizer_end_of_text(t);
    int rc = 0;

    *out = NULL;
    f->t = t;
    f->block_bytes = FEED_BLOCK;
    f->left = BUF_INIT(FEED_MAX_LINE + FEED_BLOCK);
    f->end_of_text = end_of_text < 0 ? SLICE_NONE : tokenizer_text(t, (uint32_t)end_of_text);
    for (size_t i = 0; rc == 0 && i < paths; i++) {
        rc = add_pattern(f, path[i], include, e);
    }
    if (rc == 0) {
        *out = f;
        f = NULL;
    }
    feed_close(&f);
    return rc;
}

void feed_set_block(struct feed *f, size_t bytes)
{
    CHECK(bytes > 0 && bytes <= FEED_BLOCK);
    f->block_bytes = bytes;
}

void feed_close(struct feed **fp)
{
    struct feed *f = *fp;

    if (f != NULL) {
        *fp = NULL;
        source_close(&f->source);
        buf_free(&f->left);
        for (size_t i = 0; i < f->inputs; i++) {
            free(f->input[i].path);
        }
        free(f->input);
        free(f);
    }
}

uint64_t feed_bytes(const struct feed *f)
{
    return f->bytes;
}

uint64_t feed_files(const struct feed *f)
{
    return f->files;
}

uint64_t feed_skipped(const struct feed *f)
{
    return f->skipped;
}

/* --- cutting ---------------------------------------------------------------------------------- */

/* The end of the last whole line behind `from`, 0: there is none. */
static size_t cut_lines(struct slice text, size_t from)
{
    const char *newline = memrchr(text.p + from, '\n', text.n - from);

    return newline != NULL ? (size_t)(newline - text.p) + 1 : 0;
}

/* Behind an end-of-text mark a document ends, which the part with the mark must see: no cut
 * there. */
static size_t cut_text(const struct feed *f, struct slice text, size_t from)
{
    size_t at;

    while ((at = tokenizer_cut(f->t, text, from)) != 0 && f->end_of_text.n > 0 &&
           slice_ends(slice_first(text, at), f->end_of_text)) {
        text.n = at;
    }
    return at;
}

/* There is no good place: before the last character then, so that something is left to end the
 * document. */
static size_t cut_anywhere(const struct feed *f, struct slice text)
{
    size_t at = text.n - 1;

    while (at > text.n - 4 && ((uint8_t)text.p[at] & 0xc0) == 0x80) {
        at--;
    }
    if (f->end_of_text.n > 0 && slice_ends(slice_first(text, at), f->end_of_text)) {
        at -= f->end_of_text.n;
    }
    return at;
}

/* Where to cut what is there; 0: more is needed first. */
static size_t find_cut(const struct feed *f, const struct block *b, size_t from)
{
    struct slice text = buf_slice(&b->text);
    size_t at = f->lines ? cut_lines(text, from) : cut_text(f, text, from);

    return at == 0 && !f->lines && text.n >= FEED_MAX_TEXT ? cut_anywhere(f, text) : at;
}

/* --- reading ---------------------------------------------------------------------------------- */

static int open_next(struct feed *f, struct err *e)
{
    const char *path = f->input[f->at].path;
    struct slice name = source_name(path);

    f->lines = slice_ends(name, SLICE(".jsonl")) || slice_ends(name, SLICE(".ndjson"));
    f->begun = false;
    f->line = 1;
    f->files++;
    return source_open(path, &f->source, e);
}

static void close_done(struct feed *f)
{
    f->before_bytes += source_taken(f->source);
    source_close(&f->source);
    f->at++;
}

/* Reads on until the block holds `want` bytes; *whole: the file ends there. */
static int fill_feed_block(struct feed *f, struct block *b, size_t want, bool *whole, struct err *e)
{
    *whole = false;
    while (b->text.n < want) {
        size_t n, room = want - b->text.n;
        char *p = buf_room(&b->text, room);
        int rc;

        CHECK(p != NULL);
        rc = source_read(f->source, p, room, &n, e);
        if (rc != 0) {
            return rc;
        }
        if (n == 0) {
            *whole = true;
            return 0;
        }
        buf_grew(&b->text, n);
    }
    return 0;
}

/* More than one cut's worth, cut at the last good place: what is behind it is kept for the next
 * block. */
static int fill_and_cut(struct feed *f, struct block *b, struct err *e)
{
    size_t most = f->lines ? FEED_MAX_LINE : FEED_MAX_TEXT, at = 0, seen = 0;
    int rc = 0;

    for (size_t want = f->block_bytes; rc == 0 && at == 0;
         want = 2 * want < most ? 2 * want : most) {
        rc = fill_feed_block(f, b, want, &b->last, e);
        if (rc != 0 || b->last) {
            return rc;
        }
        at = find_cut(f, b, seen);
        seen = b->text.n > UNDECIDED ? b->text.n - UNDECIDED : 0;
        if (at == 0 && b->text.n >= most) {
            rc = err_set(e, E_TOOBIG, "%s:%llu: the line is longer than %d MiB", b->path,
                         (unsigned long long)f->line, FEED_MAX_LINE >> 20);
        }
    }
    if (rc == 0) {
        buf_add(&f->left, b->text.p + at, b->text.n - at);
        b->text.n = at;
    }
    return rc;
}

static uint64_t count_lines(struct slice text)
{
    uint64_t n = 0;

    for (const char *p = text.p; (p = memchr(p, '\n', (size_t)(text.p + text.n - p))) != NULL;
         p++) {
        n++;
    }
    return n;
}

static bool is_binary(const struct feed *f, const struct block *b)
{
    return f->input[f->at].text_only && !f->begun && b->text.n > 0 &&
           memchr(b->text.p, '\0', b->text.n) != NULL;
}

/* A block of the open file; empty when it was the wrong kind of file. */
static int next_of_file(struct feed *f, struct block *b, struct err *e)
{
    int rc;

    buf_clear(&b->text);
    buf_adds(&b->text, buf_slice(&f->left));
    buf_clear(&f->left);
    b->lines = f->lines;
    b->path = f->input[f->at].path;
    b->line = f->line;
    rc = fill_and_cut(f, b, e);
    if (rc != 0) {
        return rc;
    }
    if (is_binary(f, b)) {
        buf_clear(&b->text);
        buf_clear(&f->left);
        f->files--;
        f->skipped++;
        b->last = true;
    }
    b->first = !f->begun;
    f->begun = true;
    f->line += f->lines && b->text.n > 0 ? count_lines(buf_slice(&b->text)) : 0;
    b->taken_bytes = f->before_bytes + source_taken(f->source);
    if (b->last) {
        close_done(f);
    }
    return 0;
}

int feed_next(struct feed *f, struct block *out, bool *end, struct err *e)
{
    do {
        int rc = 0;

        *end = f->at == f->inputs;
        if (*end) {
            return 0;
        }
        if (f->source == NULL) {
            rc = open_next(f, e);
        }
        rc = rc != 0 ? rc : next_of_file(f, out, e);
        if (rc != 0) {
            return rc;
        }
    } while (out->text.n == 0);
    return 0;
}
