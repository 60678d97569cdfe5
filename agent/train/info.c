/* trainer info - what a shape, a checkpoint, a folder from the Hub or a token shard is; digests are checked. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/checkpoint.h"
#include "agent/train/shard.h"
#include "agent/train/verbs.h"

static void print_model(const struct options *o, const struct model_config *c,
                        const struct train_state *s, bool verified)
{
    struct layout l;

    layout_init(&l, c, 1);
    if (o->json) {
        printf("{\"model_type\":\"gpt2\",\"parameters\":%lld,\"layers\":%lld,\"heads\":%lld,"
               "\"hidden\":%lld,\"ffn\":%lld,\"vocab\":%lld,\"context\":%lld",
               (long long)l.parameters, (long long)c->layers, (long long)c->heads,
               (long long)c->hidden, (long long)c->ffn, (long long)c->vocab, (long long)c->context);
        if (s != NULL) {
            printf(",\"step\":%lld,\"tokens\":%llu", (long long)s->step,
                   (unsigned long long)s->tokens);
        }
        printf(",\"verified\":%s}\n", verified ? "true" : "false");
    } else {
        printf(
            "gpt2: %.2f M parameters, %lld layers, %lld heads of %lld, width %lld, vocabulary %lld, context %lld\n",
            (double)l.parameters / 1e6, (long long)c->layers, (long long)c->heads,
            (long long)c->head_dim, (long long)c->hidden, (long long)c->vocab,
            (long long)c->context);
        if (s != NULL) {
            printf("after step %lld, %llu tokens\n", (long long)s->step,
                   (unsigned long long)s->tokens);
        }
        if (verified) {
            printf("all files are as the manifest says\n");
        }
    }
    layout_fini(&l);
}

static int info_folder(const struct options *o, const char *dir, struct err *e)
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
    if (rc == 0 && ours) {
        rc = checkpoint_verify(dir, e);
        rc = rc != 0 ? rc : checkpoint_state(dir, &s, e);
    }
    if (rc == 0) {
        print_model(o, &c, ours ? &s : NULL, ours);
    }
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
    if (rc != 0) {
        err_prefix(e, "%s", path);
    } else if (o->json) {
        printf("{\"tokens\":%llu,\"vocab\":%u,\"tokenizer\":\"%s\",\"verified\":true}\n",
               (unsigned long long)s.tokens, s.vocab, s.tokenizer);
    } else {
        printf("%llu tokens of \"%s\", vocabulary %u; the SHA-256 holds\n",
               (unsigned long long)s.tokens, s.tokenizer, s.vocab);
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
            print_model(o, &c, NULL, false);
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
