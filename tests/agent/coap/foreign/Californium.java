import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP;
import org.eclipse.californium.core.coap.MediaTypeRegistry;
import org.eclipse.californium.core.coap.Option;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.cose.AlgorithmID;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.oscore.HashMapCtxDB;
import org.eclipse.californium.oscore.OSCoreCoapStackFactory;
import org.eclipse.californium.oscore.OSCoreCtx;

/**
 * A sensor with Californium: it posts each line of its input to the address of its argument, and prints the response's
 * code. With secret, salt, sender ID and recipient ID as further arguments it uses OSCORE.
 */
@SuppressWarnings("deprecation")
class Californium {
  static final int ECHO = 252;
  static byte[] echo;

  public static void main(String[] arguments) throws Exception {
    CoapConfig.register();
    String address = "coap://" + arguments[0];
    boolean isProtected = arguments.length > 1;
    if (isProtected) protect(address, arguments);
    CoapClient sensor = new CoapClient(address);
    sensor.setEndpoint(CoapEndpoint.builder().setConfiguration(configuration()).build());
    sensor.setTimeout(isProtected ? 1_000L : 5_000L); // it does not retransmit under OSCORE
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split(" ", 2);
      CoapResponse response = post(sensor, address, parts, isProtected);
      if (response != null && response.getCode() == CoAP.ResponseCode.UNAUTHORIZED && echo != null)
        response = post(sensor, address, parts, isProtected);
      System.out.println(response == null ? "none" : response.getCode());
    }
    System.exit(0);
  }

  static Configuration configuration() {
    return Configuration.createStandardWithoutFile()
        .set(CoapConfig.ACK_TIMEOUT, 100, TimeUnit.MILLISECONDS)
        .set(CoapConfig.PREFERRED_BLOCK_SIZE, 64)
        .set(CoapConfig.MAX_MESSAGE_SIZE, 64);
  }

  static void protect(String address, String[] arguments) throws Exception {
    byte[][] values = new byte[4][];
    for (int i = 0; i < values.length; i++) values[i] = StringUtil.hex2ByteArray(arguments[i + 1]);
    HashMapCtxDB contexts = new HashMapCtxDB();
    contexts.addContext(address, new OSCoreCtx(values[0], true, AlgorithmID.AES_CCM_16_64_128, values[2], values[3],
        AlgorithmID.HKDF_HMAC_SHA_256, 32, values[1], null, 65536));
    OSCoreCoapStackFactory.useAsDefault(contexts);
  }

  /** Post an event with the latest Echo value, and keep that of the response. */
  static CoapResponse post(CoapClient sensor, String address, String[] line, boolean isProtected) throws Exception {
    Request request = new Request(CoAP.Code.POST, line[0].equals("NON") ? CoAP.Type.NON : CoAP.Type.CON);
    request.setURI(address + "/events").setPayload(line[1]);
    request.getOptions().setContentFormat(MediaTypeRegistry.APPLICATION_JSON);
    if (isProtected) request.getOptions().setOscore(new byte[0]);
    if (echo != null) request.getOptions().addOtherOption(new Option(ECHO, echo));
    CoapResponse response = sensor.advanced(request);
    Option option = response == null ? null : response.getOptions().getOtherOption(ECHO);
    if (option != null) echo = option.getValue();
    return response;
  }
}
