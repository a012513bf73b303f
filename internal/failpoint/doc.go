// Package failpoint names the places where a crash or an error would hurt, so
// that tests can have one there. Built without the tag failpoint, as it is
// shipped, every function is empty.
//
// Built with it, the variable BERTH_FAILPOINTS says what happens where: a list,
// separated by commas, of
//
//	point        the process is killed, as by kill -9, when it gets there
//	point@3      the same, the third time
//	point%10     the point gives an error, each time with a chance of 10 in 100
//
// A point of Here can only kill, one of Error can do both.
package failpoint
