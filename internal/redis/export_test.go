package redis

// OpenWith is Open with another patience and clock.
var OpenWith = open
