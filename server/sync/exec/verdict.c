#include "server/sync/exec/verdict.h"

enum { RSYNC_PARTIAL = 23, RSYNC_VANISHED = 24, SSH_FAILED = 255, WORDS_MAX = 180 };

static bool said_contains_words(struct slice text, const char *words)
{
    size_t n = strlen(words);

    for (size_t i = 0; i + n <= text.n; i++) {
        if (slice_ieq(slice_of(text.p + i, n), slice_of(words, n))) {
            return true;
        }
    }
    return false;
}

struct words {
    const char *text;
    int rc;
};

/* The first that is found counts. */
static const struct words known[] = {
    {"no space left on device", E_NOSPACE},
    {"disk quota exceeded", E_NOSPACE},
    {"unknown module", E_NOTFOUND},
    {"max connections", E_BUSY},
    {"auth failed", E_DENIED},
    {"access denied", E_DENIED},
    {"host key verification failed", E_DENIED},
    {"permission denied (", E_DENIED}, /* ssh, with the ways it tried */
    {"too many authentication failures", E_DENIED},
    {"bad configuration option", E_CONFIG},
    {"protocol version mismatch", E_UNSUPPORTED},
    {"command not found", E_CONFIG},
    {"failed to exec", E_CONFIG},
    {"could not resolve", E_NETWORK},
    {"connection refused", E_NETWORK},
    {"timed out", E_TIMEOUT},
    {"timeout", E_TIMEOUT},
};

/* Of rsync's own, in which it tells that it ends, but not why. */
static bool only_sums_up(struct slice line)
{
    return slice_starts(line, SLICE("rsync error:")) ||
           slice_starts(line, SLICE("rsync warning:")) ||
           slice_starts(line, SLICE("rsync: connection unexpectedly closed"));
}

static bool is_known(struct slice line)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (said_contains_words(line, known[i].text)) {
            return true;
        }
    }
    return false;
}

/* The first line that says why, or the last one of any use: behind it pipes break. */
static struct slice last_words(struct slice said)
{
    struct slice last = SLICE(""), rest = said;
    bool tells = false;

    while (rest.n > 0) {
        struct slice line = slice_trim(slice_cut(&rest, '\n'));
        bool more = !only_sums_up(line);
        if (is_known(line)) {
            last = line;
            break;
        }
        if (line.n != 0 && (more || (!tells && last.n == 0))) {
            last = line;
            tells = more;
        }
    }
    return slice_first(last, last.n < WORDS_MAX ? last.n : WORDS_MAX);
}

static int by_words(struct slice said, int otherwise)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (said_contains_words(said, known[i].text)) {
            return known[i].rc;
        }
    }
    return otherwise;
}

static int code_of_exit(int exit_code, struct slice said)
{
    switch (exit_code) {
    case 1:   /* syntax: a setting, or an rsync that is too old for what we ask */
    case 14:  /* no pipe, no ssh */
    case 127: /* the other end's shell finds no rsync */
        return by_words(said, E_CONFIG);
    case 2:
    case 4:
        return E_UNSUPPORTED;
    case 3:
        return by_words(said, E_NOTFOUND);
    case 5:
    case 12:
    case SSH_FAILED:
        return by_words(said, E_NETWORK);
    case 10:
        return by_words(said, E_NETWORK);
    case 11:
        return by_words(said, E_IO);
    case 22:
        return E_TOOBIG;
    case 30:
    case 35:
        return E_TIMEOUT;
    default:
        return E_AGAIN;
    }
}

/* Of a partial one: nothing was there to begin with, or nothing more can be written here. */
static int of_partial(struct slice said)
{
    if (said_contains_words(said, "no space left on device") ||
        said_contains_words(said, "disk quota exceeded")) {
        return E_NOSPACE;
    }
    if (said_contains_words(said, "change_dir ") &&
        said_contains_words(said, "no such file or directory")) {
        return E_NOTFOUND;
    }
    return said_contains_words(said, "change_dir ") ? by_words(said, E_DENIED) : 0;
}

int exec_verdict(const struct exec_ended *x, bool *partial, struct err *e)
{
    struct slice words = last_words(x->said);
    int rc = x->exit_code == RSYNC_PARTIAL ? of_partial(x->said) : 0;

    *partial = x->exit_code == RSYNC_PARTIAL;
    if (x->exit_code == 0 || x->exit_code == RSYNC_VANISHED || (*partial && rc == 0)) {
        return 0;
    }
    rc = rc != 0 ? rc : code_of_exit(x->exit_code, x->said);
    return err_set(e, rc, "rsync exited with %d: " SLICE_FMT, x->exit_code,
                   SLICE_ARG(words.n != 0 ? words : SLICE("it printed no reason")));
}
