/* trainer tokenize - text into token shards: a folder of them that appears whole, or one file. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/train/companions.h"
#include "agent/train/pipeline.h"
#include "agent/train/shardset.h"
#include "agent/train/verbs.h"
#include "common/base/log.h"
#include "common/codec/jwrite.h"
#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { MANIFEST_BYTES = 64 << 20, COPY_BYTES = 1 << 20 };

/* One side of the split. */
struct side {
    const char *name;
    struct shardset *set; /* NULL: there is no such side */
    uint64_t documents;
};

struct tokenizing {
    const struct options *o;
    bool folder;            /* --out is one */
    char place[PATH_MAX];   /* --out, without a slash behind it */
    char partial[PATH_MAX]; /* where a folder grows */
    uint64_t shard_bytes;
    double share; /* of the documents, for validation */
    int64_t threads;
    struct tokenizer *tokenizer;
    struct companions companions;
    int64_t end_of_text;
    struct feed *feed;
    struct side train;
    struct side val;
    struct side *side; /* of the document that is going on */
    bool cut;          /* a single document: its end is the validation's */
    uint64_t replaced;
};

/* --- options ---------------------------------------------------------------------------------- */

static unsigned cores(void)
{
    cpu_set_t mine; /* a job's share of a node, not the node */

    return sched_getaffinity(0, sizeof mine, &mine) == 0 ? (unsigned)CPU_COUNT(&mine) : 1;
}

/* "train.bin" is a shard, "corpus" a folder of them. */
static bool names_folder(const char *place)
{
    const char *slash = strrchr(place, '/');

    return strchr(slash != NULL ? slash + 1 : place, '.') == NULL;
}

static int read_place(struct tokenizing *t, struct err *e)
{
    size_t n = strlen(t->o->out);

    while (n > 1 && t->o->out[n - 1] == '/') {
        n--;
    }
    if (n == 0 || n + sizeof ".partial/train-00000.bin" > sizeof t->place) {
        return err_set(e, E_USAGE, "--out is %s", n == 0 ? "empty" : "too long");
    }
    memcpy(t->place, t->o->out, n);
    t->folder = names_folder(t->place);
    return 0;
}

static int read_options(struct tokenizing *t, struct err *e)
{
    const struct options *o = t->o;
    int rc;

    if (o->out == NULL || o->paths == 0) {
        return err_set(e, E_USAGE, "tokenize needs --out DIR|FILE.bin and text files or folders");
    }
    rc = read_place(t, e);
    if (rc != 0) {
        return rc;
    }
    t->shard_bytes = UINT64_MAX;
    if (!t->folder && (o->shard_size != NULL || o->val_share != NULL)) {
        return err_set(e, E_USAGE,
                       "--out %.100s is a single shard; give a folder for --shard-size and --val",
                       o->out);
    }
    if (t->folder &&
        !size_parse(slice_str(o->shard_size != NULL ? o->shard_size : "256m"), &t->shard_bytes)) {
        return err_set(e, E_USAGE, "--shard-size %.20s is not a size; write one such as 256m",
                       o->shard_size);
    }
    if (o->val_share != NULL && !share_parse(slice_str(o->val_share), &t->share)) {
        return err_set(e, E_USAGE, "--val %.20s is not a share; write one such as 1%%",
                       o->val_share);
    }
    t->threads = o->threads != 0 ? o->threads : cores();
    return t->threads >= 1 && t->threads <= 1024
               ? 0
               : err_set(e, E_USAGE,
                         "--threads %lld is out of range; give 1 to 1024, or 0 for all cores",
                         (long long)o->threads);
}

static int open_tokenizer(struct tokenizing *t, struct err *e)
{
    const char *mark = t->o->end_of_text;
    int rc = tokenizer_open(t->o->tokenizer, &t->tokenizer, e);

    if (rc == 0 && t->o->tokenizer != NULL) {
        rc = companions_add(&t->companions, t->o->tokenizer, e);
    }
    if (rc != 0) {
        return rc;
    }
    t->end_of_text = mark != NULL ? tokenizer_added(t->tokenizer, slice_str(mark))
                                  : tokenizer_end_of_text(t->tokenizer);
    if (t->end_of_text < 0 && (mark != NULL || !tokenizer_is_bytes(t->tokenizer))) {
        return err_set(e, E_USAGE, "%s%.60s%s", mark != NULL ? "--end-of-text " : "",
                       mark != NULL ? mark : "the tokenizer has no known end-of-text token",
                       mark != NULL ? ": the tokenizer has no such token"
                                    : "; name one with --end-of-text");
    }
    return 0;
}

/* --- where it goes ---------------------------------------------------------------------------- */

static bool has_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int entries = 0;

    while (d != NULL && entries <= 2 && readdir(d) != NULL) {
        entries++; /* "." and ".." are two */
    }
    if (d != NULL) {
        closedir(d);
    }
    return entries > 2;
}

/* The folder grows beside its place, so that what a crash leaves is never taken for a corpus. */
static int make_partial(struct tokenizing *t, struct err *e)
{
    int rc;

    if (has_entries(t->place)) {
        return err_set(e, E_EXISTS, "%s: the folder is not empty; use another --out", t->place);
    }
    snprintf(t->partial, sizeof t->partial, "%s.partial", t->place);
    rc = dir_remove_tree(t->partial, e);
    return rc != 0 ? rc : dir_make(t->partial, 0755, e);
}

static int open_side(struct tokenizing *t, struct side *side, struct err *e)
{
    struct shard about = {.vocab = tokenizer_vocab(t->tokenizer),
                          .identity = *tokenizer_identity(t->tokenizer)};
    char path[PATH_MAX];

    snprintf(about.tokenizer, sizeof about.tokenizer, "%s", tokenizer_name(t->tokenizer));
    snprintf(path, sizeof path, "%s%s%s", t->folder ? t->partial : t->place, t->folder ? "/" : "",
             t->folder ? side->name : "");
    return shardset_open(path, !t->folder, t->shard_bytes, &about, &side->set, e);
}

static int open_out(struct tokenizing *t, struct err *e)
{
    int rc = t->folder ? make_partial(t, e) : 0;

    rc = rc != 0 ? rc : open_side(t, &t->train, e);
    return rc != 0 || t->share <= 0 ? rc : open_side(t, &t->val, e);
}

static void write_side(struct buf *out, const struct side *side)
{
    jwrite_open(out, side->name, '{');
    jwrite_u64(out, "documents", side->documents);
    jwrite_u64(out, "tokens", shardset_tokens(side->set));
    jwrite_open(out, "shards", '[');
    for (size_t i = 0; i < shardset_count(side->set); i++) {
        const char *name;
        const struct shard *s = shardset_at(side->set, i, &name);

        jwrite_open(out, NULL, '{');
        jwrite_str(out, "file", name);
        jwrite_u64(out, "tokens", s->tokens);
        jwrite_hex(out, "tokens_sha256", s->digest.b, DIGEST_BYTES);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
}

/* manifest.json: what the folder holds and how it was made. */
static int write_manifest(const struct tokenizing *t, struct err *e)
{
    struct buf text = BUF_INIT(MANIFEST_BYTES);
    char path[PATH_MAX];
    struct newfile *f;
    int rc;

    jwrite_open(&text, NULL, '{');
    jwrite_u64(&text, "version", SHARD_VERSION);
    jwrite_str(&text, "tokenizer", tokenizer_name(t->tokenizer));
    jwrite_hex(&text, "tokenizer_sha256", tokenizer_identity(t->tokenizer)->b, DIGEST_BYTES);
    jwrite_u64(&text, "vocab", tokenizer_vocab(t->tokenizer));
    if (t->end_of_text >= 0) {
        jwrite_u64(&text, "end_of_text", (uint64_t)t->end_of_text);
    }
    write_side(&text, &t->train);
    if (t->val.set != NULL) {
        write_side(&text, &t->val);
    }
    jwrite_close(&text, '}');
    buf_byte(&text, '\n');
    snprintf(path, sizeof path, "%s/manifest.json", t->partial);
    rc = text.rc != 0
             ? err_set(e, text.rc, "manifest.json: too many shards; use a larger --shard-size")
             : newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, text.p, text.n);
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

static int finish_folder(struct tokenizing *t, struct err *e)
{
    int rc = companions_save(&t->companions, t->partial, NULL, e);

    rc = rc != 0 ? rc : write_manifest(t, e);
    if (rc == 0 && rename(t->partial, t->place) == -1) { /* over an empty folder it may */
        rc = err_sys(e, "cannot rename %s", t->partial);
    }
    return rc != 0 ? rc : dir_sync_above(t->place, e);
}

static int finish_tokenizing(struct tokenizing *t, struct err *e)
{
    int rc = 0;

    if (shardset_tokens(t->train.set) == 0) {
        return err_set(
            e, E_INVALID, "the input has no text%s",
            t->val.set != NULL && shardset_tokens(t->val.set) != 0
                ? " for training, because --val took all documents (a .txt file is one, a .jsonl "
                  "has one per line); give more documents or leave out --val"
                : "");
    }
    if (t->val.set != NULL && shardset_tokens(t->val.set) == 0) {
        return err_set(
            e, E_INVALID,
            "--val %s: none of the %llu documents was chosen (a .txt file is one, a .jsonl has "
            "one per line); use a larger share",
            t->o->val_share, (unsigned long long)t->train.documents);
    }
    rc = shardset_finish(t->train.set, e);
    rc = rc != 0 || t->val.set == NULL ? rc : shardset_finish(t->val.set, e);
    return rc != 0 || !t->folder ? rc : finish_folder(t, e);
}

/* --- a single text ---------------------------------------------------------------------------- */

/* Tokens of a finished shard, as they lie there: the first *train of them for training (fewer when
 * it has fewer), the rest for validation. */
static int share_out(struct tokenizing *t, const struct shard *s, uint64_t *train, struct err *e)
{
    char *piece = mem_new(COPY_BYTES);
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < s->tokens;) {
        struct side *side = *train > 0 ? &t->train : &t->val;
        uint64_t n = min_u64(s->tokens - at, COPY_BYTES / s->token_bytes);

        n = *train > 0 ? min_u64(n, *train) : n;
        rc = fd_pread_all(s->fd, piece, n * s->token_bytes, s->head_bytes + at * s->token_bytes, e);
        rc = rc != 0 ? rc : shardset_add(side->set, piece, n * s->token_bytes, e);
        *train -= min_u64(n, *train);
        at += n;
    }
    free(piece);
    return rc;
}

/* Shard number i of the folder under a name that neither side has. */
static void name_whole(const struct tokenizing *t, size_t i, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/whole-%05zu.bin", t->partial, i);
}

static int move_aside(const struct tokenizing *t, const struct shardset *set, struct err *e)
{
    char from[PATH_MAX], to[PATH_MAX];
    const char *name;

    for (size_t i = 0; i < shardset_count(set); i++) {
        (void)shardset_at(set, i, &name);
        snprintf(from, sizeof from, "%s/%s", t->partial, name);
        name_whole(t, i, to);
        if (rename(from, to) == -1) {
            return err_sys(e, "cannot rename %s", from);
        }
    }
    return 0;
}

static int share_out_all(struct tokenizing *t, size_t shards, uint64_t train, struct err *e)
{
    char path[PATH_MAX];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < shards; i++) {
        struct shard s;

        name_whole(t, i, path);
        rc = shard_open(path, &s, e);
        if (rc == 0) {
            rc = share_out(t, &s, &train, e);
            shard_close(&s);
            (void)unlink(path); /* room for the next one; the folder's name is not its own yet */
        }
    }
    return rc;
}

/* A hash puts a document on one side, which leaves the other one empty when there is but one. Then
 * its end is for validation. That it is the only one is known behind its last token, so what was
 * written is shared out once more. */
static int cut_single(struct tokenizing *t, struct err *e)
{
    uint64_t tokens = shardset_tokens(t->train.set) + shardset_tokens(t->val.set);
    uint64_t val = (uint64_t)ceil(t->share * (double)tokens);
    struct shardset *whole = shardset_tokens(t->train.set) > 0 ? t->train.set : t->val.set, *empty;
    size_t shards;
    int rc;

    if (val >= tokens) {
        return err_set(e, E_INVALID,
                       "--val %s: the text has %llu tokens, which are too few to split",
                       t->o->val_share, (unsigned long long)tokens);
    }
    empty = whole == t->train.set ? t->val.set : t->train.set;
    t->train.set = t->val.set = NULL;
    rc = shardset_finish(whole, e);
    shards = shardset_count(whole);
    rc = rc != 0 ? rc : move_aside(t, whole, e);
    shardset_close(&whole);
    shardset_close(&empty);
    rc = rc != 0 ? rc : open_side(t, &t->train, e);
    rc = rc != 0 ? rc : open_side(t, &t->val, e);
    t->train.documents = t->val.documents = 1;
    t->cut = true;
    return rc != 0 ? rc : share_out_all(t, shards, tokens - val, e);
}

/* --- the work --------------------------------------------------------------------------------- */

/* By its content: the same document is on the same side wherever it stands, and so are its
 * copies. */
static struct side *side_of(struct tokenizing *t, const struct encode_document *d)
{
    return t->val.set != NULL && (double)(d->hash >> 11) < t->share * 0x1p53 ? &t->val : &t->train;
}

static int put_block(struct tokenizing *t, const struct encoded *x, struct err *e)
{
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->documents; i++) {
        struct side *side = side_of(t, &x->document[i]);

        side->documents++;
        if (side != t->side) { /* neighbours on one side go in one piece */
            rc = shardset_add(t->side->set, x->tokens.p + at, x->document[i].at - at, e);
            at = x->document[i].at;
            t->side = side;
        }
    }
    t->replaced += x->replaced;
    return rc != 0 ? rc : shardset_add(t->side->set, x->tokens.p + at, x->tokens.n - at, e);
}

static int put_all(struct tokenizing *t, struct err *e)
{
    const struct encode_options o = {.tokenizer = t->tokenizer,
                                     .end_of_text = t->end_of_text,
                                     .ordinary = t->o->ordinary,
                                     .field = slice_str(t->o->field)};
    struct pipeline *p = pipeline_open(t->feed, &o, (unsigned)t->threads);
    struct progress *bar = progress_open("tokenize");
    const struct encoded *x;
    uint64_t taken;
    int rc;

    while ((rc = pipeline_next(p, &x, &taken, e)) == 0 && x != NULL) {
        rc = put_block(t, x, e);
        if (rc != 0) {
            break;
        }
        progress_draw(bar, taken, feed_bytes(t->feed), clock_now_ms());
    }
    progress_close(&bar);
    pipeline_close(&p);
    return rc;
}

static void print_tokenize_result(const struct tokenizing *t, uint64_t took_ms)
{
    char rate[UNITS_TEXT];

    size_format(feed_bytes(t->feed) * 1000 / (took_ms + 1), rate);
    fprintf(stderr, "%s: %llu tokens", t->place, (unsigned long long)shardset_tokens(t->train.set));
    if (t->val.set != NULL) {
        fprintf(stderr, " and %llu for validation%s",
                (unsigned long long)shardset_tokens(t->val.set),
                t->cut ? ", the end of the text," : "");
    }
    fprintf(stderr, " from %llu files, %llu documents, %s/s",
            (unsigned long long)feed_files(t->feed),
            (unsigned long long)(t->cut ? 1 : t->train.documents + t->val.documents), rate);
    if (feed_skipped(t->feed) > 0) {
        fprintf(stderr, " (%llu binary files skipped)", (unsigned long long)feed_skipped(t->feed));
    }
    if (t->replaced > 0) {
        fprintf(stderr, " (U+FFFD in %llu places that were not valid UTF-8)",
                (unsigned long long)t->replaced);
    }
    fputc('\n', stderr);
}

int verb_tokenize(struct options *o, struct err *e)
{
    struct tokenizing *t = NEW(struct tokenizing);
    uint64_t began_ms = clock_now_ms();
    struct err why;
    int rc;

    t->o = o;
    t->train.name = "train";
    t->val.name = "val";
    t->side = &t->train;
    rc = read_options(t, e);
    rc = rc != 0 ? rc : open_tokenizer(t, e);
    rc = rc != 0 ? rc : feed_open(o->path, (size_t)o->paths, o->include, t->tokenizer, &t->feed, e);
    rc = rc != 0 ? rc : open_out(t, e);
    rc = rc != 0 ? rc : put_all(t, e);
    if (rc == 0 && t->val.set != NULL && t->share < 1 &&
        t->train.documents + t->val.documents == 1) {
        rc = cut_single(t, e);
    }
    rc = rc != 0 ? rc : finish_tokenizing(t, e);
    if (rc == 0) {
        print_tokenize_result(t, clock_now_ms() - began_ms);
    }
    shardset_close(&t->train.set);
    shardset_close(&t->val.set);
    if (rc != 0 && t->partial[0] != '\0' && dir_remove_tree(t->partial, &why) != 0) {
        log_warn("tokenize.left", "%s", why.text);
    }
    feed_close(&t->feed);
    tokenizer_close(&t->tokenizer);
    companions_free(&t->companions);
    free(t);
    return rc;
}
