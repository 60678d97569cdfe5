/* trainer info - what a shape, a checkpoint, a folder from the Hub or a token shard is; digests are checked. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/checkpoint.h"
#include "agent/train/shard.h"
#include "agent/train/verbs.h"
#include "common/codec/jwrite.h"

/* s: of a checkpoint of ours, verified; NULL. newest: it was found here; NULL: it was named itself. */
static void print_model(const struct options *o, const struct model_config *c,
                        const struct train_state *s, const char *newest)
{
    struct layout l;

    layout_init(&l, c, 1);
    if (o->json) {
        printf("{\"model_type\":\"%s\",\"parameters\":%lld,\"layers\":%lld,\"heads\":%lld,"
               "\"hidden\":%lld,\"ffn\":%lld,\"vocab\":%lld,\"context\":%lld",
               config_family(c), (long long)l.parameters, (long long)c->layers, (long long)c->heads,
               (long long)c->hidden, (long long)c->ffn, (long long)c->vocab, (long long)c->context);
        if (s != NULL) {
            printf(",\"step\":%lld,\"tokens\":%llu", (long long)s->step,
                   (unsigned long long)s->tokens);
        }
        if (newest != NULL) {
            struct buf path = BUF_INIT(64 << 10);
            struct jwrite j = JWRITE_INTO(&path);
            jwrite_text(&j, slice_str(newest));
            printf(",\"checkpoint\":%s", buf_cstr(&path));
            buf_free(&path);
        }
        printf(",\"verified\":%s}\n", s != NULL ? "true" : "false");
    } else {
        printf(
            "%s: %.2f M parameters, %lld layers, %lld heads of %lld, width %lld, vocabulary %lld, context %lld\n",
            config_family(c), (double)l.parameters / 1e6, (long long)c->layers, (long long)c->heads,
            (long long)c->head_dim, (long long)c->hidden, (long long)c->vocab,
            (long long)c->context);
        if (s != NULL) {
            printf("after step %lld, %llu tokens; all files are as the manifest says\n",
                   (long long)s->step, (unsigned long long)s->tokens);
        }
    }
    layout_fini(&l);
}

/* A model of ours has a manifest; one from the Hub does not. */
static int info_model(const struct options *o, const char *dir, const char *newest, struct err *e)
{
    struct train_state s;
    struct model_config c;
    char path[PATH_MAX];
    bool ours;
    int rc;

    snprintf(path, sizeof path, "%s/config.json", dir);
    rc = config_load(path, &c, e);
    snprintf(path, sizeof path, "%s/manifest.sha256", dir);
    ours = access(path, F_OK) == 0;
    if (rc == 0 && ours && newest == NULL) {
        rc = checkpoint_verify(dir, e);
    }
    if (rc == 0 && ours) {
        rc = checkpoint_state(dir, &s, e);
    }
    if (rc == 0) {
        print_model(o, &c, ours ? &s : NULL, newest);
    }
    return rc;
}

/* The folder of a model, or of a run: then its newest checkpoint that is whole. */
static int info_folder(const struct options *o, const char *dir, struct err *e)
{
    size_t n = checkpoint_count(dir);
    char path[PATH_MAX];
    char *newest;
    int rc;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if (access(path, F_OK) == 0) {
        return info_model(o, dir, NULL, e);
    }
    if (n == 0) {
        return err_set(e, E_NOTFOUND,
                       "%s: holds neither a model (config.json) nor checkpoint-<step> folders",
                       dir);
    }
    rc = checkpoint_newest(dir, &newest, e);
    if (rc == 0 && !o->json) {
        printf("%s, the newest of %zu\n", newest, n);
    }
    rc = rc != 0 ? rc : info_model(o, newest, newest, e);
    free(newest);
    return rc;
}

static int info_shard(const struct options *o, const char *path, struct err *e)
{
    struct shard s;
    int rc = shard_open(path, &s, e);

    if (rc != 0) {
        return rc;
    }
    rc = shard_verify(&s, e);
    if (rc == 0 && o->json) {
        printf("{\"tokens\":%llu,\"vocab\":%u,\"tokenizer\":\"%s\",\"verified\":%s}\n",
               (unsigned long long)s.tokens, s.vocab, s.tokenizer,
               digest_is_zero(&s.digest) ? "false" : "true");
    } else if (rc == 0) {
        printf("%llu tokens of \"%s\", vocabulary %u; %s\n", (unsigned long long)s.tokens,
               s.tokenizer, s.vocab,
               digest_is_zero(&s.digest) ? "no SHA-256 to check" : "the SHA-256 holds");
    }
    shard_close(&s);
    return rc;
}

int verb_info(const struct options *o, struct err *e)
{
    struct model_config c;
    struct stat st;
    int rc;

    if (o->config != NULL && o->paths == 0) {
        rc = setup_config(o, &c, e);
        if (rc == 0) {
            print_model(o, &c, NULL, NULL);
        }
        return rc;
    }
    if (o->paths != 1) {
        return err_set(e, E_USAGE, "info needs one checkpoint, folder or shard, or --config");
    }
    if (stat(o->path[0], &st) == -1) {
        return err_sys(e, "%s", o->path[0]);
    }
    return S_ISDIR(st.st_mode) ? info_folder(o, o->path[0], e) : info_shard(o, o->path[0], e);
}
