#include "agent/job/notice.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/codec/jread.h"
#include "common/codec/url.h"
#include "common/os/forked.h"
#include "common/xfer/xfer.h"

enum { PAUSE_S = 5, ANSWER_S = 5, BODY_MAX = 64 << 10, TOKEN_MAX = 512, FIELDS_MAX = 3 };

struct notice {
    pid_t pid;
    int fd; /* a byte comes when there is a notice */
};

/* --- what an answer means --------------------------------------------------------------------- */

/* Azure lists the events of the whole scale set, and in each the machines that it is about. vm
 * NULL: ours is not known. */
static bool concerns(const json_t *event, struct slice vm)
{
    const json_t *names = json_object_get(event, "Resources");
    bool found = vm.p == NULL || json_array_size(names) == 0;

    for (size_t i = 0; i < json_array_size(names); i++) {
        found = found || slice_ieq(jread_slice(json_array_get(names, i)), vm);
    }
    return found;
}

static bool takes_away(const json_t *event)
{
    static const char *const types[] = {"Preempt", "Terminate", "Reboot", "Redeploy"};
    struct slice type = jread_text(event, "EventType");
    bool found = false;

    for (size_t i = 0; type.p != NULL && i < ARRAY_LEN(types); i++) {
        found = found || slice_eqs(type, types[i]);
    }
    return found;
}

static bool json_is_notice(const json_t *root, struct slice vm)
{
    const json_t *events = json_object_get(root, "Events");
    bool found = jread_text(root, "action").n > 0;

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        found = found || (takes_away(event) && concerns(event, vm));
    }
    return found;
}

/* Whether such an answer is a notice. vm: this machine's name among those of an event; SLICE_NONE:
 * an event of any counts. */
static bool is_notice(int status, struct slice body, struct slice vm)
{
    json_t *root;
    bool found;

    body = slice_trim(body);
    if (status != 200 || slice_eq(body, SLICE("TRUE"))) {
        return status == 200;
    }
    root = jread_parse(body, 0, jread_values_of(body.n));
    found = json_is_notice(root, vm);
    json_decref(root);
    return found;
}

/* --- a question ------------------------------------------------------------------------------- */

struct question {
    struct event_base *base;
    struct buf body;
    int status; /* 0: no answer that is whole */
};

static int on_job_notice_head(void *arg, const struct xfer_head *h)
{
    struct question *q = arg;

    q->status = h->status;
    return 0;
}

static int on_job_notice_body(void *arg, struct slice bytes)
{
    struct question *q = arg;

    buf_adds(&q->body, bytes);
    return q->body.rc;
}

static void on_job_notice_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct question *q = arg;

    (void)why;
    (void)body_bytes;
    q->status = rc == 0 ? q->status : 0;
    event_base_loopbreak(q->base);
}

/* The status, and the body that *answer gets; 0 when no answer came in time. */
static int request_notice(enum xfer_method method, struct slice url, const struct slice *fields,
                          size_t n, struct buf *answer)
{
    const struct xfer_events events = {on_job_notice_head, on_job_notice_body, on_job_notice_done};
    const struct xfer_params want = {.method = method,
                                     .url = url,
                                     .fields = fields,
                                     .nfields = n,
                                     .connect_timeout_ms = ANSWER_S * 1000};
    const struct timeval limit = {.tv_sec = ANSWER_S};
    struct question q = {.base = event_base_new(), .body = BUF_INIT(BODY_MAX)};
    struct xfer_loop *loop;

    CHECK(q.base != NULL);
    loop = xfer_loop_open(q.base, &(struct xfer_limits){.user_agent = "trainagent"});
    (void)xfer_start(loop, &want, &events, &q);
    event_base_loopexit(q.base, &limit);
    event_base_dispatch(q.base);
    if (!event_base_got_break(q.base)) {
        q.status = 0; /* it may have begun, and not be whole */
    }
    xfer_loop_close(&loop);
    event_base_free(q.base);
    buf_clear(answer);
    buf_adds(answer, buf_slice(&q.body));
    buf_free(&q.body);
    return q.status;
}

/* Another address of the same service. */
static void same_host(const char *url, const char *path, struct buf *out)
{
    struct url u;

    buf_clear(out);
    CHECK(url_split(slice_str(url), &u, NULL) == 0);
    url_write_origin(&u, out);
    buf_str(out, path);
}

static bool fetch_token(const char *url, struct buf *line)
{
    static const struct slice lifetime = SLICE("X-aws-ec2-metadata-token-ttl-seconds: 60");
    struct buf place = BUF_INIT(8192), token = BUF_INIT(BODY_MAX);
    bool got;

    same_host(url, "/latest/api/token", &place);
    got = request_notice(XFER_PUT, buf_slice(&place), &lifetime, 1, &token) == 200 && token.n > 0 &&
          token.n <= TOKEN_MAX;
    buf_clear(line);
    if (got) {
        buf_str(line, "X-aws-ec2-metadata-token: ");
        buf_adds(line, slice_trim(buf_slice(&token)));
    }
    buf_free(&place);
    buf_free(&token);
    return got;
}

/* False: it is another machine's. Where our name cannot be had it may be ours. */
static bool is_notice_for_us(const char *url, struct slice body)
{
    static const struct slice azure = SLICE("Metadata: true");
    struct buf place = BUF_INIT(8192), name = BUF_INIT(BODY_MAX);
    bool ours = true;

    if (!is_notice(200, body, SLICE(""))) { /* names machines */
        same_host(url, "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
                  &place);
        ours = request_notice(XFER_GET, buf_slice(&place), &azure, 1, &name) != 200 ||
               name.n == 0 || is_notice(200, body, slice_trim(buf_slice(&name)));
    }
    buf_free(&place);
    buf_free(&name);
    return ours;
}

static bool ask_once(const char *url)
{
    struct slice fields[FIELDS_MAX] = {SLICE("Metadata-Flavor: Google"), SLICE("Metadata: true")};
    struct buf body = BUF_INIT(BODY_MAX), token = BUF_INIT(2 * TOKEN_MAX);
    int status = request_notice(XFER_GET, slice_str(url), fields, FIELDS_MAX - 1, &body);
    bool found;

    if (status == 401 && fetch_token(url, &token)) {
        fields[FIELDS_MAX - 1] = buf_slice(&token);
        status = request_notice(XFER_GET, slice_str(url), fields, FIELDS_MAX, &body);
    }
    found =
        is_notice(status, buf_slice(&body), SLICE_NONE) && is_notice_for_us(url, buf_slice(&body));
    buf_free(&body);
    buf_free(&token);
    return found;
}

/* --- the process ------------------------------------------------------------------------------ */

NORETURN static void keep_asking(const char *url, pid_t parent, int tell)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent && !ask_once(url)) {
        sleep(PAUSE_S);
    }
    if (getppid() == parent && write(tell, "!", 1) == 1) {
        kill(parent, SIGTERM);
    }
    _exit(0);
}

int notice_start(const char *url, struct notice **out, struct err *e)
{
    pid_t me = getpid();
    struct notice *n;
    struct err why;
    struct url u;
    int rc;

    *out = NULL;
    if (url == NULL) {
        return 0;
    }
    if (url_split(slice_str(url), &u, &why) != 0) {
        return err_set(e, E_USAGE, "--preempt-url %.100s: %s", url, why.text);
    }
    n = NEW(struct notice);
    rc = forked_start(&n->pid, &n->fd, e);
    if (rc != 0) {
        free(n);
        return rc;
    }
    if (n->pid == 0) {
        keep_asking(url, me, n->fd);
    }
    *out = n;
    return 0;
}

bool notice_came(const struct notice *n)
{
    struct pollfd p = {.fd = n != NULL ? n->fd : -1, .events = POLLIN};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

bool notice_sent(const struct notice *n, pid_t from)
{
    return n != NULL && from == n->pid;
}

void notice_stop(struct notice **np)
{
    const struct timespec now = {0};
    siginfo_t info;
    struct notice *n = *np;
    sigset_t term;

    if (n == NULL) {
        return;
    }
    *np = NULL;
    kill(n->pid, SIGKILL);
    while (waitpid(n->pid, NULL, 0) == -1 && errno == EINTR) {
    }
    if (notice_came(n)) { /* if the ranks have ended already, it is not for this program to end */
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        if (sigtimedwait(&term, &info, &now) == SIGTERM && !notice_sent(n, info.si_pid)) {
            raise(SIGTERM); /* somebody else's: it is pending again */
        }
    }
    close(n->fd);
    free(n);
}
