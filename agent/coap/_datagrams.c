/* Reads and sends many UDP datagrams in one system call each: recvmmsg(2) and sendmmsg(2), which Python does not have.

   Other threads run during the call. A peer is 48 bytes: struct sockaddr_in6 of the sensor, then struct in6_pktinfo
   (RFC 3542) with the address and interface that the datagram was sent to. agent/coap/udp.py has the same in Python. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ADDRESS_BYTES ((Py_ssize_t)sizeof(struct sockaddr_in6))
#define INFO_BYTES ((Py_ssize_t)sizeof(struct in6_pktinfo))
#define PEER_BYTES (ADDRESS_BYTES + INFO_BYTES)
#define CONTROL_BYTES CMSG_SPACE(sizeof(struct in6_pktinfo))
#define COUNT_MAX 1024

typedef union {
    char bytes[CONTROL_BYTES];
    struct cmsghdr aligned;
} Control;

typedef struct {
    PyObject_HEAD
    Py_ssize_t datagram_bytes;
    unsigned int count;
    char in_use; /* the interpreter's lock is released during a call */
    char *datagrams;
    struct mmsghdr *messages;
    struct iovec *vectors;
    struct sockaddr_in6 *addresses;
    Control *controls;
} Receiver;

static void Receiver_dealloc(Receiver *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(self->datagrams);
    free(self->messages);
    free(self->vectors);
    free(self->addresses);
    free(self->controls);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static int Receiver_init(Receiver *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"datagram_bytes_max", "count_max", NULL};
    Py_ssize_t size;
    int count;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ni", names, &size, &count))
        return -1;
    if (self->messages != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a Receiver is initialised once");
        return -1;
    }
    if (size < 1 || size > 65536 || count < 1 || count > COUNT_MAX) {
        PyErr_SetString(PyExc_ValueError, "a size of 1 to 65536 bytes and a count of 1 to 1024 are possible");
        return -1;
    }
    self->datagrams = malloc((size_t)size * (size_t)count); /* the system provides a page when a datagram needs it */
    self->messages = calloc((size_t)count, sizeof *self->messages);
    self->vectors = calloc((size_t)count, sizeof *self->vectors);
    self->addresses = calloc((size_t)count, sizeof *self->addresses);
    self->controls = calloc((size_t)count, sizeof *self->controls);
    if (!self->datagrams || !self->messages || !self->vectors || !self->addresses || !self->controls) {
        PyErr_NoMemory();
        return -1;
    }
    for (int at = 0; at < count; at++) {
        self->vectors[at].iov_base = self->datagrams + (size_t)at * (size_t)size;
        self->vectors[at].iov_len = (size_t)size;
        self->messages[at].msg_hdr.msg_iov = &self->vectors[at];
        self->messages[at].msg_hdr.msg_iovlen = 1;
        self->messages[at].msg_hdr.msg_name = &self->addresses[at];
        self->messages[at].msg_hdr.msg_control = self->controls[at].bytes;
    }
    self->datagram_bytes = size;
    self->count = (unsigned int)count;
    return 0;
}

static PyObject *peer_of(struct msghdr *message)
{
    char peer[PEER_BYTES];
    memset(peer, 0, sizeof peer);
    memcpy(peer, message->msg_name, (size_t)ADDRESS_BYTES);
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part))
        if (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_PKTINFO) {
            memcpy(peer + ADDRESS_BYTES, CMSG_DATA(part), (size_t)INFO_BYTES);
            return PyBytes_FromStringAndSize(peer, PEER_BYTES);
        }
    return PyBytes_FromStringAndSize(peer, ADDRESS_BYTES);
}

static PyObject *received(struct mmsghdr *message)
{
    PyObject *datagram = PyBytes_FromStringAndSize(message->msg_hdr.msg_iov->iov_base, (Py_ssize_t)message->msg_len);
    PyObject *peer = datagram ? peer_of(&message->msg_hdr) : NULL;
    PyObject *truncated = message->msg_hdr.msg_flags & MSG_TRUNC ? Py_True : Py_False;
    PyObject *result = peer ? PyTuple_Pack(3, datagram, peer, truncated) : NULL;
    Py_XDECREF(datagram);
    Py_XDECREF(peer);
    return result;
}

PyDoc_STRVAR(receive_doc,
             "receive($self, descriptor, /)\n--\n\n"
             "Return the datagrams that wait at a socket, each with its peer and whether it was cut.\n\n"
             "The list is empty where none waits. Raises OSError.");

static PyObject *Receiver_receive(Receiver *self, PyObject *descriptor)
{
    long file = PyLong_AsLong(descriptor); /* that of a closed socket is -1, for which the kernel has an error */
    if (file == -1 && PyErr_Occurred())
        return NULL;
    if (self->messages == NULL || self->in_use) {
        PyErr_SetString(PyExc_RuntimeError, "a Receiver serves one thread at a time");
        return NULL;
    }
    for (unsigned int at = 0; at < self->count; at++) {
        self->messages[at].msg_hdr.msg_namelen = (socklen_t)ADDRESS_BYTES;
        self->messages[at].msg_hdr.msg_controllen = CONTROL_BYTES;
        self->messages[at].msg_hdr.msg_flags = 0;
    }
    int count;
    self->in_use = 1;
    Py_BEGIN_ALLOW_THREADS
    count = recvmmsg((int)file, self->messages, self->count, MSG_DONTWAIT, NULL);
    Py_END_ALLOW_THREADS
    self->in_use = 0;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *list = PyList_New(count < 0 ? 0 : count);
    for (int at = 0; list != NULL && at < count; at++) {
        PyObject *one = received(&self->messages[at]);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, one);
    }
    return list;
}

/* Set up a message for one (datagram, peer) tuple; return -1 with an exception where it is none. */
static int address(PyObject *pair, struct mmsghdr *message, struct iovec *vector, Control *control)
{
    PyObject *datagram, *peer;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyBytes_Check(datagram = PyTuple_GET_ITEM(pair, 0)) ||
        !PyBytes_Check(peer = PyTuple_GET_ITEM(pair, 1)) ||
        (PyBytes_GET_SIZE(peer) != PEER_BYTES && PyBytes_GET_SIZE(peer) != ADDRESS_BYTES)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of a datagram and a peer is needed, as bytes");
        return -1;
    }
    vector->iov_base = PyBytes_AS_STRING(datagram);
    vector->iov_len = (size_t)PyBytes_GET_SIZE(datagram);
    message->msg_hdr.msg_iov = vector;
    message->msg_hdr.msg_iovlen = 1;
    message->msg_hdr.msg_name = PyBytes_AS_STRING(peer);
    message->msg_hdr.msg_namelen = (socklen_t)ADDRESS_BYTES;
    if (PyBytes_GET_SIZE(peer) == PEER_BYTES) {
        message->msg_hdr.msg_control = control->bytes;
        message->msg_hdr.msg_controllen = CONTROL_BYTES;
        struct cmsghdr *part = CMSG_FIRSTHDR(&message->msg_hdr);
        part->cmsg_level = IPPROTO_IPV6;
        part->cmsg_type = IPV6_PKTINFO;
        part->cmsg_len = CMSG_LEN(sizeof(struct in6_pktinfo));
        memcpy(CMSG_DATA(part), PyBytes_AS_STRING(peer) + ADDRESS_BYTES, (size_t)INFO_BYTES);
    }
    return 0;
}

PyDoc_STRVAR(send_doc,
             "send($module, descriptor, pairs, /)\n--\n\n"
             "Send datagrams, each to its peer; return how many the kernel refused. Does not wait.");

static PyObject *send_all(PyObject *module, PyObject *arguments)
{
    int file;
    PyObject *pairs;
    if (!PyArg_ParseTuple(arguments, "iO!", &file, &PyList_Type, &pairs))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(pairs);
    if (count == 0)
        return PyLong_FromLong(0);
    PyObject *kept = PyList_AsTuple(pairs); /* another thread may change the list during the call */
    struct mmsghdr *messages = calloc((size_t)count, sizeof *messages);
    struct iovec *vectors = calloc((size_t)count, sizeof *vectors);
    Control *controls = calloc((size_t)count, sizeof *controls);
    PyObject *result = NULL;
    if (kept == NULL || !messages || !vectors || !controls) {
        if (kept != NULL)
            PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (address(PyTuple_GET_ITEM(kept, at), &messages[at], &vectors[at], &controls[at]) < 0)
            goto end;
    long refused = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < count;) {
        unsigned int more = (unsigned int)(count - at < COUNT_MAX ? count - at : COUNT_MAX);
        int sent = sendmmsg(file, messages + at, more, MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 1) { /* the first of these is the one that was refused */
            refused++;
            sent = 1;
        }
        at += sent;
    }
    Py_END_ALLOW_THREADS
    result = PyLong_FromLong(refused);
end:
    Py_XDECREF(kept);
    free(messages);
    free(vectors);
    free(controls);
    return result;
}

static PyMethodDef receiver_methods[] = {
    {"receive", (PyCFunction)Receiver_receive, METH_O, receive_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot receiver_slots[] = {
    {Py_tp_doc, "Receiver(datagram_bytes_max, count_max)\n--\n\nBuffers for many datagrams at once."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, Receiver_init},
    {Py_tp_dealloc, Receiver_dealloc},
    {Py_tp_methods, receiver_methods},
    {0, NULL},
};

static PyType_Spec receiver_spec = {
    .name = "agent.coap._datagrams.Receiver",
    .basicsize = sizeof(Receiver),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = receiver_slots,
};

static PyMethodDef methods[] = {
    {"send", send_all, METH_VARARGS, send_doc},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&receiver_spec);
    if (type == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "Receiver", type);
    Py_DECREF(type);
    return status;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "agent.coap._datagrams",
    .m_doc = "Many datagrams in one system call.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__datagrams(void)
{
    return PyModuleDef_Init(&definition);
}
