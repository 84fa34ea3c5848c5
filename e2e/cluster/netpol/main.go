// Enforces the NetworkPolicies of one node of the local cluster: kube-router's controller and nothing else of kube-router.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/coreos/go-iptables/iptables"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// From the beginning of a round of the controller to that of the next one, at least.
const pause = 2 * time.Second

func main() {
	var kubeconfig, node, services, ready string
	flag.StringVar(&kubeconfig, "kubeconfig", "", "who asks the API server")
	flag.StringVar(&node, "node", "", "the name of the node")
	flag.StringVar(&services, "service-range", "", "the addresses of Services")
	flag.StringVar(&ready, "ready-socket", "", "a socket that accepts once the policies are applied for the first time")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := run(ctx, kubeconfig, node, services, ready); err != nil {
		fmt.Fprintln(os.Stderr, "netpol:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node, services, ready string) error {
	// Where administrators' programs are, and how the controller learns which node is its own.
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") //nolint:errcheck
	os.Setenv("NODE_NAME", node)                            //nolint:errcheck
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	// The kubelet makes the Node; the administrator grants the rights, and that takes a moment longer in a new cluster.
	waitFor(ctx, "the address of the node", func() (bool, error) {
		object, err := client.CoreV1().Nodes().Get(ctx, node, v1.GetOptions{})
		return err == nil && hasAddress(object), err
	})
	// The controller puts its jumps before all others, by number, and must not do so while kube-proxy inserts its own. That of this chain is its last.
	waitFor(ctx, "the rules of kube-proxy", serviceRules)

	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	config.ClusterIPCIDRs = []string{services}
	config.IPTablesSyncPeriod = time.Minute
	informers := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	pods := informers.Core().V1().Pods().Informer()
	namespaces := informers.Core().V1().Namespaces().Informer()
	policies := informers.Networking().V1().NetworkPolicies().Informer()
	commands, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	chains := &ownChains{}
	for family, handler := range commands {
		commands[family] = &remembered{IPTablesHandler: handler, chains: chains}
	}
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, commands, sets)
	if err != nil {
		return err
	}
	var once sync.Once
	chains.applied = func() { once.Do(func() { go accept(ready) }) }
	// What an event asked for would else wait for the next event.
	chains.failed = func() { time.AfterFunc(time.Second, controller.RequestFullSync) }
	useOwnChains(controller, chains)
	for _, watch := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{pods, controller.PodEventHandler}, {namespaces, controller.NamespaceEventHandler}, {policies, controller.NetworkPolicyEventHandler}} {
		if _, err := watch.informer.AddEventHandler(watch.handler); err != nil {
			return err
		}
	}
	informers.Start(ctx.Done())
	for kind, complete := range informers.WaitForCacheSync(ctx.Done()) {
		if !complete {
			return fmt.Errorf("no list of %v", kind)
		}
	}

	// The controller says before each round that it lives, and waits until somebody hears it. A round takes up all events before it, so while many Pods
	// come and go they are spaced; the first one after a pause begins at once.
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
			time.Sleep(pause)
		}
	}()
	var group sync.WaitGroup
	group.Add(1)
	go controller.Run(beats, ctx.Done(), &group)
	// Rules and sets stay: the node's network goes with the node, and without them a restart would open it.
	<-ctx.Done()
	return nil
}

// Half of an object, and nobody reads it.
func trim(object any) (any, error) {
	if described, err := meta.Accessor(object); err == nil {
		described.SetManagedFields(nil)
	}
	return object, nil
}

func hasAddress(node *core.Node) bool {
	for _, address := range node.Status.Addresses {
		if address.Type == core.NodeInternalIP {
			return true
		}
	}
	return false
}

func serviceRules() (bool, error) {
	tables, err := iptables.New()
	if err != nil {
		return false, err
	}
	// Its arguments as kube-proxy gives them.
	return tables.Exists("nat", "POSTROUTING", "-m", "comment", "--comment", "kubernetes postrouting rules", "-j", "KUBE-POSTROUTING")
}

func waitFor(ctx context.Context, what string, look func() (bool, error)) {
	told := ""
	for ctx.Err() == nil {
		there, err := look()
		if there {
			return
		}
		if now := fmt.Sprint(err); now != told {
			klog.Infof("Waiting for %s: %v", what, err)
			told = now
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Ends with the process, and so does the socket's answer.
func accept(path string) {
	os.Remove(path) //nolint:errcheck
	listener, err := net.Listen("unix", path)
	if err != nil {
		klog.Fatalf("Failed to listen: %v", err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			klog.Fatalf("Failed to accept: %v", err)
		}
		connection.Close()
	}
}
