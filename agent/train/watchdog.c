#include "agent/train/watchdog.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/train/rollcall.h"
#include "common/base/text.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum {
    LOOK_MS = 1000,
    ALIVE_NS = 1000000, /* of the processor's time */
    ASLEEP_MS = 5000,
    ROLL_MS = 3000,
    ASKED_MS = 8000,
    ABORT_MS = 5000,
    OTHERS_MS =
        1000,   /* a launcher kills all when one has ended: the others write their records first */
    END_S = 10, /* what comes after the verdict takes that long at most, unless it hangs */
    LAST_RESORT_S = 25
};

enum state { WATCHING, ROLL, ASKED, WRITING, LEAVING, ENDING };

/* Where a rank is, as it said when the roll was called. */
struct place {
    bool here;
    struct flight_view at;
};

struct watchdog {
    struct watchdog_options o;
    struct rollcall *roll;
    struct place *place; /* of each rank, on rank 0 */
    pthread_t thread;
    char path[PATH_MAX];
    sem_t abort_wanted, abort_done;

    /* The thread's own. */
    enum state state;
    uint64_t until_ms;
    uint64_t woke_ns;   /* when it last found that it had been stopped; 0: never */
    uint64_t looked_ns; /* when it last came round */
    /* nothing is older than this: before it the whole process was stopped, or not there */
    uint64_t awake_ns;
    char fault_text[ROLL_TEXT];
    enum roll_fault fault;
    int fault_rank;              /* who found it */
    struct roll_message verdict; /* in WRITING and LEAVING */
    bool sick; /* this rank's GPU is broken: it ends with 71 where the others end with 75 */
    uint64_t said_wait_ms;
    uint64_t main_used_ns;

    /* Of the main thread, which sets them before it wakes the other. */
    atomic_bool closing, failed;
    atomic_bool writes, host_work;
    atomic_bool waits;    /* in WRITING */
    clockid_t main_clock; /* the processor's time that the main thread has used */
    int failed_rc;
    char failed_text[ROLL_TEXT];
};

/* --- the end ---------------------------------------------------------------------------------- */

static void *abort_thread(void *arg)
{
    struct watchdog *w = arg;

    while (sem_wait(&w->abort_wanted) == -1) {
    }
    comm_abort(w->o.comm);
    sem_post(&w->abort_done);
    return NULL;
}

static void wait_for_abort(struct watchdog *w)
{
    struct timespec until;

    sem_post(&w->abort_wanted);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_MS / 1000;
    while (sem_timedwait(&w->abort_done, &until) == -1 && errno == EINTR) {
    }
}

/* JSON's strings: of what a text may hold, quotes, backslashes and control bytes. */
static void quote(const char *text, char *out, size_t room)
{
    size_t n = 0;

    for (; *text != '\0' && n + 2 < room; text++) {
        if (*text == '"' || *text == '\\') {
            out[n++] = '\\';
        }
        out[n++] = (unsigned char)*text < ' ' ? ' ' : *text;
    }
    out[n] = '\0';
}

/* Integers and strings alone: printf() allocates for neither. */
static void make_head(const struct watchdog *w, const struct roll_message *end, char *line,
                      size_t room)
{
    const struct comm *c = w->o.comm;
    struct flight_view v;
    char text[2 * ROLL_TEXT], facts[2 * sizeof c->facts];

    flight_look(c->flight, &v);
    quote(end->text, text, sizeof text);
    quote(c->facts, facts, sizeof facts);
    line[0] = '\0';
    text_addf(line, room, "{\"rank\": %d, \"world\": %d, \"pid\": %d, \"unix_ms\": %" PRIu64,
              c->rank, c->size, (int)getpid(), clock_unix_ms());
    text_addf(line, room, ", \"why\": \"%s\", \"exit\": %d, \"suspects\": ", text, end->exit_code);
    for (int i = 0; i < end->suspects; i++) {
        text_addf(line, room, "%s%d", i == 0 ? "[" : ", ", end->suspect[i]);
    }
    text_addf(line, room, end->suspects > 0 ? "]" : end->suspects == 0 ? "[]" : "null");
    text_addf(line, room,
              ", \"posted\": %" PRIu64 ", \"returned\": %" PRIu64 ", \"done\": %" PRIu64, v.posted,
              v.returned, v.done);
    if (v.waits.seq != 0) {
        text_addf(line, room,
                  ", \"waits_for\": {\"seq\": %" PRIu64
                  ", \"op\": \"%s\", \"dtype\": \"%s\", \"count\": %" PRId64
                  ", \"comm\": \"%s\", \"for_ms\": %" PRIu64 "}",
                  v.waits.seq, flight_op_name(v.waits.op), flight_dtype_name(v.waits.dt),
                  v.waits.count, v.waits.comm, (clock_now_ns() - v.waits.posted_ns) / 1000000u);
    } else {
        text_addf(line, room, ", \"waits_for\": null");
    }
    text_addf(line, room, ", \"comm\": \"%s\", \"facts\": \"%s\"}", c->name, facts);
}

static void log_watchdog_text(const struct watchdog *w, const char *text)
{
    const struct comm *c = w->o.comm;
    char line[PATH_MAX + 512] = "trainer: ";
    ssize_t n;

    if (c->size > 1) {
        text_addf(line, sizeof line, "rank %d of %d: ", c->rank, c->size);
    }
    text_addf(line, sizeof line, "%s\n", text);
    n = write(STDERR_FILENO, line, strlen(line));
    (void)n; /* nobody is left to tell */
}

/* Says where it lies, or why it does not. */
static void record(const struct watchdog *w, const struct roll_message *m)
{
    char line[2048], note[PATH_MAX + 64] = "";
    int rc;

    mkdir(w->o.out, 0755); /* a run that has just begun has none */
    make_head(w, m, line, sizeof line);
    rc = flight_write(w->o.comm->flight, w->path, line);
    if (rc == 0) {
        text_addf(note, sizeof note, "flight record: %s", w->path);
    } else {
        text_addf(note, sizeof note, "no flight record: %s: %s", w->path, strerrordesc_np(-rc));
    }
    log_watchdog_text(w, note);
}

/* The text comes first: a file system that hangs, which may be the fault, would keep it back. */
NORETURN static void end(struct watchdog *w, const struct roll_message *verdict)
{
    struct roll_message own = *verdict, *m = &own;

    if (w->sick && own.exit_code == EX_TEMPFAIL) {
        own.exit_code = err_sysexit(E_SICK);
    }
    w->state = ENDING;
    alarm((unsigned)min_u64(LAST_RESORT_S, END_S + w->o.timeout_ms / 1000));
    log_watchdog_text(w, m->text);
    /* An error that a rank has of its own is no riddle. */
    if (m->exit_code == EX_TEMPFAIL || m->exit_code == EX_SOFTWARE || w->sick) {
        record(w, m);
    }
    if (w->o.comm->size > 1) {
        poll(NULL, 0, OTHERS_MS);
    }
    wait_for_abort(w);
    _exit(m->exit_code);
}

/* --- the verdict ------------------------------------------------------------------------------ */

static void suspect(struct roll_message *m, int rank)
{
    m->suspects = m->suspects < 0 ? 0 : m->suspects;
    if (m->suspects < ROLL_SUSPECTS) {
        m->suspect[m->suspects++] = rank;
    }
}

/* "rank 2", "ranks 2, 3 and more" */
static void name_suspects(struct roll_message *m, int all)
{
    text_addf(m->text, sizeof m->text, all == 1 ? "rank " : "ranks ");
    for (int i = 0; i < m->suspects; i++) {
        text_addf(m->text, sizeof m->text, "%s%d", i == 0 ? "" : ", ", m->suspect[i]);
    }
    if (all > m->suspects) {
        text_addf(m->text, sizeof m->text, " and %d more", all - m->suspects);
    }
}

static bool judge_silence(const struct watchdog *w, struct roll_message *m)
{
    int silent = 0;

    for (int i = 0; i < w->o.comm->size; i++) {
        if (!w->place[i].here && rollcall_has_met(w->roll, i)) {
            suspect(m, i);
            silent++;
        }
    }
    if (silent > 0) {
        name_suspects(m, silent);
        text_addf(m->text, sizeof m->text, silent == 1 ? " does not respond" : " do not respond");
    }
    return silent > 0;
}

/* The one that is furthest; where it waits, the others should be. */
static const struct place *foremost(const struct watchdog *w)
{
    const struct place *best = &w->place[0];

    for (int i = 1; i < w->o.comm->size; i++) {
        if (w->place[i].at.posted > best->at.posted) {
            best = &w->place[i];
        }
    }
    return best;
}

static const char *plural_have(int ranks)
{
    return ranks == 1 ? "has" : "have";
}

static bool judge_laggards(const struct watchdog *w, struct roll_message *m)
{
    const struct place *best = foremost(w);
    const struct flight_entry *x = &best->at.waits;
    int behind = 0;

    for (int i = 0; i < w->o.comm->size; i++) {
        if (w->place[i].at.posted < (x->seq != 0 ? x->seq : best->at.posted)) {
            suspect(m, i);
            behind++;
        }
    }
    if (behind > 0) {
        name_suspects(m, behind);
        text_addf(m->text, sizeof m->text, " %s not reached ", plural_have(behind));
        if (x->seq != 0) {
            text_addf(m->text, sizeof m->text, "%s %" PRIu64 " (%s, %" PRId64 " elements)",
                      flight_op_name(x->op), x->seq, flight_dtype_name(x->dt), x->count);
        } else {
            text_addf(m->text, sizeof m->text, "collective %" PRIu64, best->at.posted);
        }
    }
    return behind > 0;
}

/* Calls of one collective that have not returned, where other ranks' have; if all hang, it is no
 * rank's fault. */
static bool judge_calls(const struct watchdog *w, struct roll_message *m)
{
    const struct flight_entry *x = &foremost(w)->at.waits;
    int inside = 0;

    for (int i = 0; i < w->o.comm->size; i++) {
        inside += w->place[i].at.returned < x->seq;
    }
    if (inside == 0 || inside == w->o.comm->size) {
        return false;
    }
    for (int i = 0; i < w->o.comm->size; i++) {
        if (w->place[i].at.returned < x->seq) {
            suspect(m, i);
        }
    }
    name_suspects(m, inside);
    text_addf(m->text, sizeof m->text, " %s not returned from the call of %s %" PRIu64,
              plural_have(inside), flight_op_name(x->op), x->seq);
    return true;
}

/* At the same number all ranks must call the same. */
static bool judge_difference(const struct watchdog *w, struct roll_message *m)
{
    const struct flight_entry *a = &w->place[0].at.waits;

    for (int i = 1; i < w->o.comm->size; i++) {
        const struct flight_entry *b = &w->place[i].at.waits;

        if (a->seq != 0 && b->seq == a->seq &&
            (a->op != b->op || a->dt != b->dt || a->count != b->count)) {
            suspect(m, i);
            m->exit_code = EX_SOFTWARE;
            text_addf(m->text, sizeof m->text,
                      "collective %" PRIu64 " is %s (%s, %" PRId64
                      ") on rank 0 and %s (%s, %" PRId64 ") on rank %d",
                      a->seq, flight_op_name(a->op), flight_dtype_name(a->dt), a->count,
                      flight_op_name(b->op), flight_dtype_name(b->dt), b->count, i);
            return true;
        }
    }
    return false;
}

/* Ranks that have not connected yet cannot answer. */
static bool judge_strangers(const struct watchdog *w, struct roll_message *m)
{
    int strangers = 0;

    for (int i = 0; i < w->o.comm->size; i++) {
        strangers += !w->place[i].here;
    }
    if (strangers > 0) {
        text_addf(m->text, sizeof m->text, "the positions of %d of %d ranks are unknown", strangers,
                  w->o.comm->size);
    }
    return strangers > 0;
}

static void diagnose_silence(const struct watchdog *w, struct roll_message *m)
{
    if (!judge_silence(w, m) && !judge_strangers(w, m) && w->fault == FAULT_LATE &&
        !judge_difference(w, m) && !judge_laggards(w, m) && !judge_calls(w, m)) {
        m->suspects = 0;
        text_addf(m->text, sizeof m->text, "all ranks are at the same point");
    }
    text_addf(m->text, sizeof m->text, "%s%s", m->text[0] != '\0' ? ": " : "", w->fault_text);
}

/* --- faults ----------------------------------------------------------------------------------- */

static void call_the_roll(struct watchdog *w)
{
    const struct roll_message m = {.kind = ROLL_CALL};

    memset(w->place, 0, (size_t)w->o.comm->size * sizeof *w->place);
    flight_look(w->o.comm->flight, &w->place[0].at);
    w->place[0].here = true;
    w->state = ROLL;
    w->until_ms = clock_now_ms() + ROLL_MS;
    rollcall_send(w->roll, &m);
}

static void on_roll_message(void *arg, const struct roll_message *m);

/* On rank 0: what it says last is for those too that have not connected yet. */
static void await_ranks(struct watchdog *w)
{
    uint64_t until_ms = clock_now_ms() + ROLL_MS;
    bool all = w->o.comm->rank != 0;

    w->state = ENDING; /* nothing that is heard now changes the verdict */
    while (!all && clock_now_ms() < until_ms) {
        all = true;
        for (int i = 1; i < w->o.comm->size; i++) {
            all = all && rollcall_has_met(w->roll, i);
        }
        if (!all) {
            rollcall_poll(w->roll, LOOK_MS / 10, on_roll_message, w);
        }
    }
}

NORETURN static void pronounce(struct watchdog *w, struct roll_message *m)
{
    m->kind = ROLL_END;
    await_ranks(w);
    rollcall_send(w->roll, m);
    end(w, m);
}

/* On rank 0: of its own, or reported to it. */
static void take_fault(struct watchdog *w, int rank, enum roll_fault fault, const char *text)
{
    struct roll_message m = {.exit_code = EX_TEMPFAIL, .suspects = -1};

    w->fault = fault;
    snprintf(w->fault_text, sizeof w->fault_text, "%s", text);
    if (fault != FAULT_OWN && w->o.comm->size > 1) {
        call_the_roll(w);
        return;
    }
    suspect(&m, rank);
    snprintf(m.text, sizeof m.text, "%s", text);
    pronounce(w, &m);
}

static void found_fault(struct watchdog *w, enum roll_fault fault, const char *text)
{
    struct roll_message m = {.kind = ROLL_FAULT,
                             .rank = w->o.comm->rank,
                             .exit_code = EX_TEMPFAIL,
                             .fault = fault,
                             .suspects = -1};

    if (w->state != WATCHING) {
        return;
    }
    if (w->o.comm->rank == 0) {
        take_fault(w, 0, fault, text);
        return;
    }
    snprintf(w->fault_text, sizeof w->fault_text, "%s", text);
    snprintf(m.text, sizeof m.text, "%s", text);
    if (!rollcall_reaches(w->roll, 0)) {
        end(w, &m);
    }
    rollcall_send(w->roll, &m);
    w->state = ASKED;
    w->until_ms = clock_now_ms() + ASKED_MS;
}

/* With an error of this rank's own, which the others hear from it. */
NORETURN static void leave_with_error(struct watchdog *w, const struct roll_message *m)
{
    await_ranks(w);
    rollcall_send(w->roll, m);
    end(w, m);
}

static void out_of_time(struct watchdog *w)
{
    struct roll_message m = {.exit_code = EX_TEMPFAIL, .suspects = -1};

    if (w->state == WRITING && w->verdict.kind == ROLL_LEAVES) {
        leave_with_error(w, &w->verdict);
    }
    if (w->state == WRITING) {
        pronounce(w, &w->verdict);
    }
    if (w->state == LEAVING) {
        end(w, &w->verdict);
    }
    if (w->state == ROLL) {
        diagnose_silence(w, &m);
        pronounce(w, &m);
    }
    suspect(&m, 0);
    snprintf(m.text, sizeof m.text, "rank 0 does not respond: %.270s", w->fault_text);
    end(w, &m);
}

static bool all_are_here(const struct watchdog *w)
{
    for (int i = 0; i < w->o.comm->size; i++) {
        if (!w->place[i].here && rollcall_reaches(w->roll, i)) {
            return false;
        }
    }
    return true;
}

static bool longer_ago(uint64_t at_ns, uint64_t ms)
{
    return clock_now_ns() - at_ns > ms * 1000000u;
}

/* The watchdog comes round each second: after a longer time the whole process was stopped. */
static bool stood_still(const struct watchdog *w)
{
    return longer_ago(w->looked_ns, ASLEEP_MS);
}

static bool woke_lately(const struct watchdog *w)
{
    return stood_still(w) || (w->woke_ns != 0 && !longer_ago(w->woke_ns, ASLEEP_MS));
}

/* On rank 0: all end when its checkpoint is written. */
static void wait_for_checkpoint(struct watchdog *w, const struct roll_message *verdict)
{
    w->verdict = *verdict;
    w->state = WRITING;
    w->until_ms = clock_now_ms() + LONG_WAIT * w->o.timeout_ms;
    atomic_store(&w->waits, true);
}

/* A rank that died, or ended with an error of its own. */
static void lost_rank(struct watchdog *w, const struct roll_message *m)
{
    struct roll_message v = {.exit_code = m->exit_code, .suspects = -1};

    suspect(&v, m->rank);
    if (woke_lately(w)) { /* they gave up on this one, not the other way round */
        v.suspect[0] = w->o.comm->rank;
        v.exit_code = EX_TEMPFAIL;
        snprintf(v.text, sizeof v.text,
                 "rank %d did not run for a while, and rank %d has exited in the meantime",
                 w->o.comm->rank, m->rank);
    } else if (m->kind == ROLL_LOST) {
        v.exit_code = EX_TEMPFAIL;
        snprintf(v.text, sizeof v.text, "rank %d has died", m->rank);
    } else {
        snprintf(v.text, sizeof v.text, "rank %d has exited: %.270s", m->rank, m->text);
    }
    if (w->o.comm->rank == 0 && m->kind == ROLL_LEAVES && atomic_load(&w->writes)) {
        wait_for_checkpoint(w, &v);
        return;
    }
    if (w->o.comm->rank == 0) {
        pronounce(w, &v);
    }
    end(w, &v);
}

/* Other ranks have an end to wait for, and a launcher would end this one with the first of them. */
static void say_wait(struct watchdog *w)
{
    const struct roll_message m = {.kind = ROLL_WAIT};
    uint64_t now_ms = clock_now_ms();

    if (now_ms - w->said_wait_ms >= LOOK_MS) {
        w->said_wait_ms = now_ms;
        rollcall_send(w->roll, &m);
    }
}

static void on_roll_message(void *arg, const struct roll_message *m)
{
    struct watchdog *w = arg;
    struct roll_message reply = {.kind = ROLL_HERE, .rank = w->o.comm->rank};
    struct flight_view v;

    if (atomic_load(&w->closing) || w->state == ENDING) {
        return; /* this rank has done all that it had to, or has its verdict */
    }
    if (w->state == LEAVING && m->kind != ROLL_WAIT && m->kind != ROLL_CALL &&
        m->kind != ROLL_HELLO) {
        end(w, &w->verdict); /* rank 0 has ended, or says so */
    }
    if (w->state == WRITING) {
        return;
    }
    switch (m->kind) {
    case ROLL_HELLO:
        break;
    case ROLL_FAULT:
        if (w->o.comm->rank == 0 && w->state == WATCHING) {
            take_fault(w, m->rank, m->fault, m->text);
        }
        break;
    case ROLL_CALL:
        flight_look(w->o.comm->flight, &v);
        reply.at = v;
        rollcall_send(w->roll, &reply);
        break;
    case ROLL_HERE:
        if (w->o.comm->rank == 0) {
            w->place[m->rank] = (struct place){.here = true, .at = m->at};
        }
        break;
    case ROLL_WAIT:
        w->until_ms = clock_now_ms() + ASKED_MS;
        break;
    case ROLL_END:
        end(w, m);
    case ROLL_LEAVES:
        if (m->exit_code != 0) {
            lost_rank(w, m);
        }
        break;
    case ROLL_LOST:
        lost_rank(w, m);
    }
}

/* --- watching --------------------------------------------------------------------------------- */

static uint64_t age_ms(const struct watchdog *w, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t since = max_u64(at_ns, w->awake_ns);

    return now_ns > since ? (now_ns - since) / 1000000u : 0;
}

static void beat_for_host_work(struct watchdog *w)
{
    struct timespec t;
    uint64_t used_ns;

    if (!atomic_load(&w->host_work) || clock_gettime(w->main_clock, &t) == -1) {
        return;
    }
    used_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (used_ns - w->main_used_ns >= ALIVE_NS) {
        w->main_used_ns = used_ns;
        flight_beat(w->o.comm->flight);
    }
}

static void check_watched_ranks(struct watchdog *w)
{
    uint64_t now_ns = clock_now_ns(), age;
    struct flight_view v;
    char text[ROLL_TEXT];

    beat_for_host_work(w);
    flight_look(w->o.comm->flight, &v);
    age = age_ms(w, v.waits.posted_ns, now_ns);
    if (v.waits.seq != 0 && age > v.waits.limit_ms) {
        snprintf(text, sizeof text,
                 "%s %" PRIu64 " (%s, %" PRId64
                 " elements, %s) on rank %d is not complete after %" PRIu64 " s",
                 flight_op_name(v.waits.op), v.waits.seq, flight_dtype_name(v.waits.dt),
                 v.waits.count, v.waits.comm, w->o.comm->rank, age / 1000);
        found_fault(w, FAULT_LATE, text);
        return;
    }
    age = age_ms(w, v.beat_ns, now_ns);
    if (age / 2 > v.limit_ms) {
        snprintf(text, sizeof text,
                 "the main thread of rank %d has done nothing for %" PRIu64
                 " s after collective %" PRIu64,
                 w->o.comm->rank, age / 1000, v.posted);
        found_fault(w, FAULT_LATE, text);
    }
}

static void main_failed(struct watchdog *w)
{
    struct roll_message m = {.kind = ROLL_LEAVES,
                             .rank = w->o.comm->rank,
                             .exit_code = err_sysexit(w->failed_rc),
                             .suspects = -1};

    snprintf(m.text, sizeof m.text, "%s", w->failed_text);
    if (watchdog_may_pass(w->failed_rc)) {
        const char *place = w->failed_rc == E_SICK ? w->o.k->place : "";

        w->sick = w->failed_rc == E_SICK;
        text_addf(m.text, sizeof m.text, " (rank %d%s%s)", w->o.comm->rank,
                  place[0] != '\0' ? ", GPU " : "", place);
        found_fault(w, w->failed_rc == E_CUDA || w->sick ? FAULT_OWN : FAULT_LOST, m.text);
        return;
    }
    if (w->state == WRITING) {
        return; /* the first verdict stands */
    }
    if (w->o.comm->rank == 0 && atomic_load(&w->writes)) {
        wait_for_checkpoint(w, &m);
        return;
    }
    if (w->o.comm->rank == 0 || !rollcall_reaches(w->roll, 0)) {
        leave_with_error(w, &m);
    }
    rollcall_send(w->roll, &m);
    w->verdict = m;
    w->state = LEAVING;
    w->until_ms = clock_now_ms() + ASKED_MS;
}

static void send_rollcall_leave(struct watchdog *w)
{
    const struct roll_message m = {.kind = ROLL_LEAVES, .rank = w->o.comm->rank};

    await_ranks(w);
    rollcall_send(w->roll, &m);
}

static void *run_watchdog_thread(void *arg)
{
    struct watchdog *w = arg;
    sigset_t alarm_set;

    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
    w->awake_ns = w->looked_ns = clock_now_ns();
    while (!atomic_load(&w->closing)) {
        rollcall_poll(w->roll, w->state == WATCHING ? LOOK_MS : LOOK_MS / 10, on_roll_message, w);
        if (stood_still(w)) {
            w->awake_ns = w->woke_ns = clock_now_ns();
        }
        w->looked_ns = clock_now_ns();
        if (atomic_exchange(&w->failed, false)) {
            main_failed(w);
        }
        if (w->state == WRITING) {
            say_wait(w);
        }
        if (w->state == WATCHING) {
            check_watched_ranks(w);
        } else if ((w->state == WRITING && !atomic_load(&w->writes)) ||
                   clock_now_ms() >= w->until_ms || (w->state == ROLL && all_are_here(w))) {
            out_of_time(w);
        }
    }
    send_rollcall_leave(w);
    return NULL;
}

/* --- what callers see ------------------------------------------------------------------------- */

/* The record of an attempt before this one would stand beside the new ones of other ranks as if it
 * were of the same fault: it is put aside. */
static void name_record(struct watchdog *w)
{
    char old[PATH_MAX + 8];

    snprintf(w->path, sizeof w->path, "%s/flight-%d.json", w->o.out, w->o.comm->rank);
    snprintf(old, sizeof old, "%s.old", w->path);
    (void)rename(w->path, old); /* most often there is none */
}

static struct watchdog *start_watchdog_thread(const struct watchdog_options *o)
{
    struct watchdog *w = NEW(struct watchdog);

    *w = (struct watchdog){.o = *o, .roll = rollcall_open(o->comm->rank, o->comm->size)};
    name_record(w);
    w->place = mem_array((size_t)o->comm->size, sizeof *w->place);
    sem_init(&w->abort_wanted, 0, 0);
    sem_init(&w->abort_done, 0, 0);
    CHECK(pthread_getcpuclockid(pthread_self(), &w->main_clock) == 0);
    watchdog_patience(w, true);
    pthread_detach(thread_start("abort", abort_thread, w));
    w->thread = thread_start("watchdog", run_watchdog_thread, w);
    return w;
}

void watchdog_host_work(struct watchdog *w, bool begins)
{
    if (w != NULL) {
        flight_beat(w->o.comm->flight);
        atomic_store(&w->host_work, begins);
    }
}

void watchdog_writes(struct watchdog *w, bool writes)
{
    if (w != NULL) {
        atomic_store(&w->writes, writes);
    }
}

/* The first collectives, which connect the ranks: they are watched already. */
int watchdog_open(const struct watchdog_options *o, struct watchdog **out, struct err *e)
{
    struct kstream *ks = NULL;
    int rc = o->k->stream_open(&ks);

    *out = NULL;
    if (rc != 0) {
        return err_set(e, rc, "%s: cannot open a stream: %s", o->k->name, o->k->fault());
    }
    *out = start_watchdog_thread(o);
    comm_watch(o->comm, o->k, ks);
    rc = comm_warm_up(o->comm, o->k, ks);
    rc = rc != 0 ? rc : rollcall_connect((*out)->roll, o->k, ks, o->comm, o->host);
    if (rc != 0) { /* the stream stays: to close it could hang */
        return err_set(e, rc, "%s: the ranks did not connect: %s%s", o->comm->name,
                       comm_fault(o->comm), o->k->fault());
    }
    o->k->stream_close(&ks);
    return 0;
}

void watchdog_close(struct watchdog **wp)
{
    struct watchdog *w = *wp;

    if (w == NULL) {
        return;
    }
    *wp = NULL;
    atomic_store(&w->closing, true);
    rollcall_wake(w->roll);
    pthread_join(w->thread, NULL);
    rollcall_close(&w->roll);
    free(w->place);
    w->place =
        NULL; /* w itself stays: the abort's thread waits in it for as long as the process lives */
}

void watchdog_patience(struct watchdog *w, bool long_wait)
{
    flight_allow(w->o.comm->flight, long_wait ? LONG_WAIT * w->o.timeout_ms : w->o.timeout_ms);
}

bool watchdog_waits(struct watchdog *w)
{
    return w != NULL && atomic_load(&w->waits);
}

void watchdog_record_alone(const char *out, int rank, int world, int rc, const char *text)
{
    struct comm none = {.name = "", .rank = rank, .size = world, .flight = flight_open()};
    struct watchdog w = {.o = {.comm = &none, .out = out}};
    struct roll_message m = {.exit_code = rc == E_SICK ? err_sysexit(rc) : EX_TEMPFAIL,
                             .suspects = -1};

    if (rc != E_TIMEOUT) {
        suspect(&m, rank);
    }
    snprintf(m.text, sizeof m.text, "%.250s (rank %d)", text, rank);
    name_record(&w);
    record(&w, &m);
    flight_close(&none.flight);
}

bool watchdog_may_pass(int rc)
{
    return rc == E_NETWORK || rc == E_CUDA || rc == E_SICK || rc == E_TIMEOUT;
}

void watchdog_fail(struct watchdog *w, int rc, const char *text)
{
    w->failed_rc = rc;
    snprintf(w->failed_text, sizeof w->failed_text, "%s", text);
    atomic_store(&w->failed, true);
    rollcall_wake(w->roll);
    while (true) {
        pause();
    }
}
