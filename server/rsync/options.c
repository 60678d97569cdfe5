#include "server/rsync/options.h"

#include <stdlib.h>

/* Options whose refusal needs a reason. */
static const struct {
    const char *option, *why;
} reasons[] = {
    {"-L", "links are sent as links and never followed"},
    {"-k", "links are sent as links and never followed"},
    {"--copy-unsafe-links", "links are sent as links and never followed"},
    {"--iconv=", "names are sent as they are stored"},
    {"--remove-source-files", "the module is read-only"},
};

static int refuse_rsync_option(struct slice what, struct err *e)
{
    const char *why = NULL;

    for (size_t i = 0; i < ARRAY_LEN(reasons) && why == NULL; i++) {
        why = slice_starts(what, slice_str(reasons[i].option)) ? reasons[i].why : NULL;
    }
    return err_set(e, E_UNSUPPORTED, "the option " SLICE_FMT " is not supported%s%s",
                   SLICE_ARG(slice_first(what, what.n < 80 ? what.n : 80)), why != NULL ? ": " : "",
                   why != NULL ? why : "");
}

/* What the receiver does with what it gets, and what changes nothing for us. */
static const char *const fine[] = {
    "--server",
    "--sender",
    "--delete",
    "--delete-before",
    "--delete-during",
    "--delete-after",
    "--delete-delay",
    "--delete-excluded",
    "--ignore-errors",
    "--partial",
    "--delay-updates",
    "--inplace",
    "--no-implied-dirs",
    "--no-i-r",
    "--safe-links",
    "--super",
    "--existing",
    "--ignore-existing",
    "--size-only",
    "--force",
    "--no-r",
    "--no-d",
    "--no-W",
    "--stats",
    "--list-only",
    "--use-qsort",
    "--whole-file",
    "--no-whole-file",
    "--fuzzy",
    "--preallocate",
    "--no-inc-recursive",
    "--omit-dir-times",
    "--open-noatime",
    "--msgs2stderr",
    "--no-msgs2stderr",
    "--fake-super",
    "--sparse",
    "--from0", /* between names, as they always come */
    "--no-relative",
    "--no-R",
    "--specials", /* a tree has none */
    "--no-specials",
};
static const char *const fine_values[] = {
    "--timeout=",    "--max-delete=", "--max-size=",    "--min-size=",   "--modify-window=",
    "--log-format=", "--out-format=", "--partial-dir=", "--block-size=", "--stop-at=",
    "--stop-after=", "--debug=",      "--info=",        "--chmod=",      "--suffix=",
    "--backup-dir=", "--temp-dir=",   "--max-alloc=",
};

static bool stands_in(struct slice a, const char *const *table, size_t n, bool prefix)
{
    for (size_t i = 0; i < n; i++) {
        if (prefix ? slice_starts(a, slice_str(table[i])) : slice_eqs(a, table[i])) {
            return true;
        }
    }
    return false;
}

static void at_least(struct client_options *o, enum client_folders folders)
{
    o->folders = o->folders > folders ? o->folders : folders;
}

static int long_option(struct slice a, struct client_options *o, struct err *e)
{
    uint64_t v;

    if (slice_eqs(a, "--numeric-ids")) {
        o->facts.numeric_ids = true;
    } else if (slice_eqs(a, "--dirs") || slice_eqs(a, "--old-dirs")) {
        at_least(o, FOLDERS_THEMSELVES);
    } else if (slice_starts(a, SLICE("--bwlimit="))) {
        if (slice_u64(slice_from(a, strlen("--bwlimit=")), &v) && v < UINT64_MAX / 1024) {
            o->bwlimit_bytes_per_s = v * 1024;
        }
    } else if (slice_starts(a, SLICE("--checksum-seed="))) {
        if (slice_u64(slice_from(a, strlen("--checksum-seed=")), &v) && v <= INT32_MAX) {
            o->seed = (int64_t)v;
        }
    } else if (slice_starts(a, SLICE("--checksum-choice="))) {
        o->checksum = slice_from(a, strlen("--checksum-choice="));
        o->checksum = slice_cut(&o->checksum, ',');
    } else if (slice_starts(a, SLICE("--compress-choice="))) {
        o->compression.kind = slice_from(a, strlen("--compress-choice="));
        o->compression.wanted = true;
    } else if (slice_eqs(a, "--new-compress") || slice_eqs(a, "--old-compress")) {
        o->compression.kind = slice_eqs(a, "--new-compress") ? SLICE("zlibx") : SLICE("zlib");
        o->compression.wanted = true;
    } else if (slice_starts(a, SLICE("--compress-level="))) {
        o->compression.wanted = true; /* the level is ours to choose, but for this one */
        o->compression.level_zero = slice_eqs(a, "--compress-level=0");
    } else if (slice_eqs(a, "--files-from=-")) {
        o->names = true;
    } else if (slice_starts(a, SLICE("--files-from"))) {
        return err_set(e, E_UNSUPPORTED,
                       "--files-from=:FILE (a list on the server) is not supported; use a list "
                       "on the client, --files-from=FILE");
    } else if (slice_eqs(a, "--ignore-missing-args")) {
        o->absent_is_fine = true;
    } else if (slice_starts(a, SLICE("--skip-compress="))) {
        o->compression.skip = slice_from(a, strlen("--skip-compress="));
    } else if (!stands_in(a, fine, ARRAY_LEN(fine), false) &&
               !stands_in(a, fine_values, ARRAY_LEN(fine_values), true)) {
        return refuse_rsync_option(a, e);
    }
    return 0;
}

static int messages(struct slice a, struct client_options *o, struct err *e)
{
    for (size_t i = 1; i < a.n; i++) {
        switch (a.p[i]) {
        case 'r':
            at_least(o, FOLDERS_ENTERED);
            break;
        case 'd':
            at_least(o, FOLDERS_THEMSELVES);
            break;
        case 'l':
            o->facts.links = true;
            break;
        case 'o':
            o->facts.owner = true;
            break;
        case 'g':
            o->facts.group = true;
            break;
        case 'H':
            o->facts.hard_links = true;
            break;
        case 'R':
            o->relative = true;
            break;
        case 'n':
            o->dry_run = true;
            break;
        case 'z':
            o->compression.wanted = true;
            break;
        case 'C':
            o->cvs = true;
            break;
        case 'e': /* ".iLsfxCIvu": all that is left */
            o->abilities = slice_from(a, i + 1);
            return 0;
        case 'v':
        case 't':
        case 'D':
        case 'p':
        case 'E':
        case 'O':
        case 'J':
        case 'S':
        case 'W':
        case 'u':
        case 'x':
        case 'q':
        case 'I':
        case 'i':
        case 'h':
        case 'm':
        case 'b':
        case 'y':
        case 's':  /* see options_secluded() */
            break; /* the receiver's, or the same for us either way */
        case 'B':  /* with its number behind */
            return 0;
        default: {
            char one[2] = {'-', a.p[i]};
            return refuse_rsync_option(slice_of(one, 2), e);
        }
        }
    }
    return 0;
}

/* Whether the client receives, also where another option is refused. */
static bool is_sender(struct slice args)
{
    while (args.n > 0) {
        struct slice a = slice_cut(&args, '\0');
        if (slice_eqs(a, ".") || slice_eqs(a, "--sender")) {
            return a.n > 1;
        }
    }
    return false;
}

bool options_secluded(struct slice args)
{
    bool yes = false;

    while (args.n > 0 && !yes) {
        struct slice a = slice_cut(&args, '\0');
        if (slice_eqs(a, ".")) {
            break;
        }
        if (slice_starts(a, SLICE("-")) && !slice_starts(a, SLICE("--"))) {
            yes = slice_find(slice_cut(&a, 'e'), 's') >= 0;
        }
    }
    return yes;
}

int options_parse(struct slice args, struct client_options *out, struct err *e)
{
    int rc = 0;

    *out = (struct client_options){.sender = is_sender(args), .seed = -1};
    while (args.n > 0 && rc == 0) {
        struct slice a = slice_cut(&args, '\0');
        if (slice_eqs(a, ".")) {
            out->paths = args;
            break;
        }
        if (slice_starts(a, SLICE("--"))) {
            rc = long_option(a, out, e);
        } else if (slice_starts(a, SLICE("-"))) {
            rc = messages(a, out, e);
        } else {
            rc = refuse_rsync_option(a, e);
        }
    }
    if (out->names) { /* a folder that is named is sent, with -r or without */
        at_least(out, FOLDERS_THEMSELVES);
    }
    if (!out->sender) {
        return err_set(e, E_UNSUPPORTED, "ERROR: module is read only; nothing can be pushed to it");
    }
    if (rc == 0 && out->paths.n == 0) {
        rc = err_set(e, E_INVALID, "the client requested no path");
    }
    return rc;
}
