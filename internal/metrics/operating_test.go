package metrics_test

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/metrics"
)

// panel is a panel of a dashboard of Grafana.
type panel struct {
	Title   string
	Type    string
	Targets []struct{ Expr string }
}

// dashboardQueries returns the queries of the dashboard, by their panels.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating/grafana-dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels     []panel
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	queries := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], target.Expr)
		}
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
	}
	for _, v := range dashboard.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			found := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(query["query"].(string))
			require.NotNil(t, found, v.Name)
			queries["variable "+v.Name] = found[1:]
		}
	}
	return queries
}

// alertQueries returns the queries of the alert rules, by their names.
func alertQueries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalWithOptions(text, &file, yaml.Strict()))
	queries := map[string][]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, queries, rule.Alert)
			require.Contains(t, []string{"critical", "warning", "info"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			queries[rule.Alert] = []string{rule.Expr}
		}
	}
	return queries
}

// shown returns the labels of every metric that a server shows once everything has
// happened, by the metric's name.
func shown(t *testing.T) map[string]map[string]bool {
	t.Helper()
	m := metrics.New()
	m.Request("/healthz", "GET", 200, time.Millisecond)
	m.Arrival("service")
	m.Build("node", "ok", time.Second)
	m.EngineCall("POST /containers/create", true, time.Second)
	m.Event("stack.live")
	m.Delivery("ok", time.Millisecond)
	_, text := scrape(m, metrics.Asked{
		Builds:   func() (int, int) { return 0, 0 },
		Statuses: []string{"live"},
		Stacks:   func(context.Context) (map[string]int, error) { return nil, nil },
	})
	found := map[string]map[string]bool{"up": {}} // which Prometheus adds
	for _, line := range regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(text, -1) {
		if found[line[1]] == nil {
			found[line[1]] = map[string]bool{}
		}
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(line[2], -1) {
			found[line[1]][label[1]] = true
		}
	}
	for _, labels := range found {
		labels["job"], labels["instance"] = true, true // which Prometheus adds
	}
	return found
}

// eventTypes returns the types of events that there are.
func eventTypes(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../stack/event.go", nil, 0)
	require.NoError(t, err)
	types := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				types[value] = true
			}
		}
		return true
	})
	return types
}

func TestOperating_EveryMetricOfTheDashboardAndTheAlertsExists(t *testing.T) {
	exist, types := shown(t), eventTypes(t)
	for _, queries := range []map[string][]string{dashboardQueries(t), alertQueries(t)} {
		require.NotEmpty(t, queries)
		for name, all := range queries {
			for _, query := range all {
				requireMetrics(t, name, query, exist, types)
			}
		}
	}
}

// requireMetrics requires that a query can be parsed, and that its metrics, their labels
// and the types of events exist.
func requireMetrics(t *testing.T, name, query string, exist map[string]map[string]bool, types map[string]bool) {
	t.Helper()
	expr, err := metricsql.Parse(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	require.NoError(t, err, "%s: %s", name, query)
	count := 0
	var labels map[string]bool
	metricsql.VisitAll(expr, func(e metricsql.Expr) {
		selector, ok := e.(*metricsql.MetricExpr)
		if !ok {
			return
		}
		for _, filter := range selector.LabelFilterss[0] {
			if filter.Label == "__name__" {
				count++
				labels = exist[filter.Value]
				require.NotNil(t, labels, "%s: there is no metric %s", name, filter.Value)
				continue
			}
			require.True(t, labels[filter.Label], "%s: %s: the metric has no label %s", name, query, filter.Label)
			if filter.Label == "type" {
				require.True(t, types[filter.Value], "%s: there is no event %s", name, filter.Value)
			}
		}
	})
	require.NotZero(t, count, "%s: %s has no metric", name, query)
	metricsql.VisitAll(expr, func(e metricsql.Expr) {
		if sum, ok := e.(*metricsql.AggrFuncExpr); ok {
			for _, by := range sum.Modifier.Args {
				require.True(t, labels[by], "%s: %s: the metric has no label %s", name, query, by)
			}
		}
	})
}
