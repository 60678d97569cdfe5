#include "agent/slurm/verdict.h"

#include <jansson.h>

#include "agent/slurm/ticket.h"
#include "common/codec/jwrite.h"

enum { TEXT_MAX = 1 << 20, LINE_MAX_BYTES = 1024 };

void verdict_init(struct verdict *v, const struct node_slurm *policy)
{
    *v = (struct verdict){
        .policy = policy, .say = BUF_INIT(TEXT_MAX), .artifacts = BUF_INIT(TEXT_MAX)};
}

void verdict_fini(struct verdict *v)
{
    buf_free(&v->say);
    buf_free(&v->artifacts);
}

void verdict_tame(char *text)
{
    for (; *text != '\0'; text++) {
        if ((uint8_t)*text < 0x20 || (uint8_t)*text >= 0x7f) {
            *text = '?';
        }
    }
}

static void say(struct verdict *v, const char *from, enum outcome o, const char *why)
{
    struct buf line = BUF_INIT(LINE_MAX_BYTES);

    buf_addf(&line, "%.600s%s%s%s%.240s%s", from != NULL ? from : "", from != NULL ? ": " : "",
             outcome_words(o), why[0] != '\0' ? " (" : "", why, why[0] != '\0' ? ")" : "");
    jwrite_str(&v->say, NULL, buf_cstr(&line));
    buf_free(&line);
}

void verdict_add(struct verdict *v, const char *from, enum outcome o, bool optional,
                 uint64_t size_bytes, uint64_t fetched_bytes, const char *why)
{
    struct buf *out = &v->artifacts;

    if (from != NULL) {
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "from", from);
        jwrite_str(out, "outcome", outcome_name(o));
        jwrite_bool(out, "optional", optional);
        jwrite_u64(out, "size", size_bytes);
        jwrite_u64(out, "fetched_bytes", fetched_bytes);
        jwrite_close(out, '}');
    }
    if (o != OUTCOME_HERE) {
        v->fails = v->fails || (!optional && outcome_act(v->policy, o) == ACT_FAIL);
        say(v, from, o, why);
    }
}

int verdict_say(const struct verdict *v, int ticket, const char *job, const char *staged,
                struct err *e)
{
    struct buf text = BUF_INIT(3 * TEXT_MAX);
    int rc;

    jwrite_open(&text, NULL, '{');
    jwrite_str(&text, "job", job);
    jwrite_str(&text, "state", "done");
    jwrite_str(&text, "staged", staged);
    jwrite_bool(&text, "run", !v->fails);
    jwrite_key(&text, SLICE("say"));
    buf_byte(&text, '[');
    buf_adds(&text, buf_slice(&v->say));
    buf_byte(&text, ']');
    jwrite_key(&text, SLICE("artifacts"));
    buf_byte(&text, '[');
    buf_adds(&text, buf_slice(&v->artifacts));
    buf_str(&text, "]}\n");
    rc = v->say.rc != 0 || v->artifacts.rc != 0 || text.rc != 0
             ? err_set(e, E_TOOBIG, "too much to say")
             : ticket_say(ticket, buf_slice(&text), e);
    buf_free(&text);
    return rc;
}

/* --- the other end ---------------------------------------------------------------------------------------------------- */

static const char *tamed(struct arena *a, const json_t *v)
{
    const char *text = json_string_value(v);
    char *out = text != NULL ? arena_cstr(a, slice_str(text)) : NULL;

    if (out != NULL) {
        verdict_tame(out);
    }
    return out;
}

void verdict_read(struct slice text, struct verdict_read *out)
{
    json_t *o = json_loadb(text.p != NULL ? text.p : "", text.n, 0, NULL);
    const char *state = json_string_value(json_object_get(o, "state"));
    const json_t *lines = json_object_get(o, "say");
    const char **list;

    *out = (struct verdict_read){.run = json_is_true(json_object_get(o, "run"))};
    out->done = state != NULL && strcmp(state, "done") == 0;
    out->staged = tamed(&out->arena, json_object_get(o, "staged"));
    list = arena_alloc(&out->arena, (json_array_size(lines) + 1) * sizeof list[0]);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = tamed(&out->arena, json_array_get(lines, i));
        if (line != NULL) {
            list[out->nsay++] = line;
        }
    }
    out->say = list;
    if (out->staged != NULL && out->staged[0] == '\0') {
        out->staged = NULL;
    }
    json_decref(o);
}

bool verdict_is_done(struct slice text)
{
    struct verdict_read got;
    bool done;

    verdict_read(text, &got);
    done = got.done;
    verdict_read_fini(&got);
    return done;
}

void verdict_read_fini(struct verdict_read *v)
{
    arena_fini(&v->arena);
}
