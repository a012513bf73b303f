package server_test

import "testing"

func TestLoad_AnEmptyAdminAddressIsNone(t *testing.T) {
	if c := load(t, nil); c.AdminListen != "127.0.0.1:9090" {
		t.Errorf("the default is %q", c.AdminListen)
	}
	if c := load(t, map[string]string{"BERTH_ADMIN_LISTEN": ""}); c.AdminListen != "" {
		t.Errorf("an empty variable gives %q", c.AdminListen)
	}
	if c := load(t, map[string]string{"BERTH_LISTEN": ""}); c.Listen != ":8080" {
		t.Errorf("another empty variable gives %q", c.Listen)
	}
}
