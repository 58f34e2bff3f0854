// A sensor with go-coap: it posts each line of its input to the address of its argument, and prints the response's code.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/plgd-dev/go-coap/v3/message"
	"github.com/plgd-dev/go-coap/v3/net/blockwise"
	"github.com/plgd-dev/go-coap/v3/options"
	"github.com/plgd-dev/go-coap/v3/pkg/runner/periodic"
	"github.com/plgd-dev/go-coap/v3/udp"
)

const waits = 4 * time.Second

func main() {
	sensor, err := udp.Dial(os.Args[1],
		options.WithBlockwise(true, blockwise.SZX64, waits),
		options.WithPeriodicRunner(periodic.New(make(chan struct{}), 50*time.Millisecond)),
		options.WithTransmission(1, 100*time.Millisecond, 4))
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		kind, event, _ := strings.Cut(lines.Text(), " ")
		ends, cancel := context.WithTimeout(context.Background(), waits)
		request, err := sensor.NewPostRequest(ends, "/events", message.AppJSON, strings.NewReader(event))
		if err != nil {
			panic(err)
		}
		if kind == "NON" {
			request.SetType(message.NonConfirmable)
		}
		if response, err := sensor.Do(request); err != nil {
			fmt.Println("none")
		} else {
			fmt.Printf("%d.%02d\n", response.Code()>>5, response.Code()&31)
		}
		cancel()
	}
}
