package fair

import "testing"

func TestPlaces_AreBoundedForEachKeyAndFreeAgain(t *testing.T) {
	const most = 3
	p := NewPlaces(most)
	var leave func()
	for range most {
		var ok bool
		if leave, ok = p.Take("a"); !ok {
			t.Fatal("a place is not to be had")
		}
	}
	if _, ok := p.Take("a"); ok {
		t.Error("there is a place too many")
	}
	if _, ok := p.Take("b"); !ok {
		t.Error("another key has no place")
	}
	leave()
	if _, ok := p.Take("a"); !ok {
		t.Error("a place that was left is not free")
	}
	if _, ok := p.Take("a"); ok {
		t.Error("leaving frees more than one place")
	}
}
