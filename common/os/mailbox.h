/* mailbox.h - how other threads speak to a loop: letters put in anywhere, read on the loop in
 * order.
 *
 * A letter is embedded in what it concerns; the sender keeps it alive until it has been delivered.
 * deliver() runs on the loop thread, outside any lock, and may free the letter's owner. One eventfd
 * write wakes the loop for a whole batch.
 *
 * owns     mailbox_close() on the loop's thread, when nobody posts any more; undelivered letters
 *          are delivered first
 * threads  mailbox_post from any; all else on the loop's thread
 */
#ifndef COMMON_OS_MAILBOX_H
#define COMMON_OS_MAILBOX_H

#include "common/base/list.h"

struct event_base;
struct mailbox;

struct letter {
    struct list node; /* in the box while posted */
    void (*deliver)(struct letter *l);
};

struct mailbox *mailbox_open(struct event_base *base);
void mailbox_post(struct mailbox *m, struct letter *l);
void mailbox_close(struct mailbox **mp);

#endif
