package build

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/runtimes"
)

func TestBases_EveryVersionOnOfferHasAnImageAndEveryImageIsOnOffer(t *testing.T) {
	var offered, there []string
	for _, d := range runtimes.All() {
		for _, v := range d.Versions {
			offered = append(offered, d.Image(v)+"@"+v)
		}
	}
	for _, image := range images.All() {
		there = append(there, fmt.Sprintf("%s@%s", image.Name, image.Version))
	}
	if !slices.Equal(offered, there) {
		t.Errorf("on offer: %s; images: %s", offered, there)
	}
}
