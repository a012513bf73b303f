// Package failpoint names the places where a crash or an error would do harm, so that
// tests can cause one there. Without the build tag failpoint, as released, every
// function is empty.
//
// With the tag, the variable BERTH_FAILPOINTS says what happens where: a list,
// separated by commas, of
//
//	point        the process is killed, as by kill -9, when it gets there
//	point@3      the same, the third time
//	point!       the process is stopped, as by kill -STOP, the first time
//	point%10     the point gives an error, each time with a chance of 10 in 100
//
// At a point of Here the process can only be killed or stopped; at one of Error all of it
// can happen.
//
// Code in this package reads that variable and ends the process. Any package may call it.
package failpoint
