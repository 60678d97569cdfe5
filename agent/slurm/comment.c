#include "agent/slurm/comment.h"

#include "common/hash/digest.h"

enum { PART_MAX = 200 }; /* with what a temporary name adds, a file's */

static bool path_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._@=+-", c) != NULL);
}

static bool part_ok(struct slice part)
{
    for (size_t i = 0; i < part.n; i++) {
        if (!path_byte(part.p[i])) {
            return false;
        }
    }
    return part.n > 0 && part.n <= PART_MAX && part.p[0] != '-' && !slice_eqs(part, ".") &&
           !slice_eqs(part, "..");
}

/* At least a repo and something in it. */
static bool path_ok(struct slice path)
{
    size_t parts = 0;

    if (slice_ends(path, SLICE("/"))) {
        path.n--;
    }
    while (path.n > 0) {
        bool more = slice_find(path, '/') >= 0;
        struct slice part = slice_cut(&path, '/');
        if (!part_ok(part) || (more && path.n == 0)) {
            return false;
        }
        parts++;
    }
    return parts >= 2;
}

static bool digest_ok(struct slice text)
{
    struct digest d;

    return slice_starts(text, SLICE("sha256=")) && digest_parse(slice_from(text, 7), &d) &&
           !digest_is_zero(&d);
}

/* What a person is shown of bytes that may be anything. */
static void printable_comment(struct slice text, char out[49])
{
    size_t n = min_u64(text.n, 48);

    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)text.p[i] < 0x20 || (uint8_t)text.p[i] >= 0x7f ? '?' : text.p[i];
    }
    out[n] = '\0';
}

int wish_read(struct slice text, struct wishes *out, struct err *e)
{
    struct wish w = {.from = text};
    struct slice rest;
    struct slice path;
    char shown[49];

    printable_comment(text, shown);
    if (text.n > WISH_MAX) {
        return err_set(e, E_INVALID, "\"%s...\" is too long; at most %d bytes are allowed", shown,
                       WISH_MAX);
    }
    if (out->n == WISHES_MAX) {
        return err_set(e, E_INVALID, "more than %d names; name folders instead of their files",
                       WISHES_MAX);
    }
    if (slice_ends(w.from, SLICE("?"))) {
        w.optional = true;
        w.from.n--;
    }
    rest = w.from;
    path = slice_cut(&rest, '#');
    if (!path_ok(path) || (path.n != w.from.n && !digest_ok(rest))) {
        return err_set(e, E_INVALID,
                       "\"%s\" is not of the form <repo>/<path>[@version][#sha256=<hex>]", shown);
    }
    out->one[out->n++] = w;
    return 0;
}

static int read_word(struct slice word, struct wishes *out, struct err *e)
{
    int rc = 0;

    if (word.n == 0) {
        return err_set(e, E_INVALID, "mirror= has no value");
    }
    while (rc == 0 && word.n > 0) {
        bool more = slice_find(word, ',') >= 0;
        rc = wish_read(slice_cut(&word, ','), out, e);
        if (rc == 0 && more && word.n == 0) {
            rc = err_set(e, E_INVALID, "there is no name after the last comma");
        }
    }
    return rc;
}

static bool is_comment_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct slice next_word(struct slice *rest)
{
    size_t n = 0;
    struct slice word;

    while (rest->n > 0 && is_comment_blank(rest->p[0])) {
        *rest = slice_from(*rest, 1);
    }
    while (n < rest->n && !is_comment_blank(rest->p[n])) {
        n++;
    }
    word = slice_first(*rest, n);
    *rest = slice_from(*rest, n);
    return word;
}

int comment_read(struct slice comment, struct wishes *out, struct err *e)
{
    static const struct slice ours = {"mirror=", 7};
    struct slice word;
    bool seen = false;
    int rc = 0;

    if (comment.n > COMMENT_MAX) {
        bool meant = memmem(comment.p, comment.n, ours.p, ours.n) != NULL;
        return meant ? err_set(e, E_INVALID,
                               "the comment is too long; at most %d bytes are allowed", COMMENT_MAX)
                     : 0;
    }
    while (rc == 0 && (word = next_word(&comment)).n > 0) {
        if (slice_starts(word, ours)) {
            rc = seen ? err_set(e, E_INVALID,
                                "mirror= is given twice; separate the names with commas")
                      : read_word(slice_from(word, ours.n), out, e);
            seen = true;
        }
    }
    return rc;
}

struct slice wish_place(struct slice from)
{
    struct slice path = slice_cut(&from, '#');

    if (slice_ends(path, SLICE("/"))) {
        path.n--;
    }
    return path;
}
